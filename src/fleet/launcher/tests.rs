//! Launchers' variables as they are, line by line, and what is wrong with others.

use super::*;

type Pairs<'a> = &'a [(&'a str, &'a str)];

fn around(variables: Pairs<'_>) -> Surroundings {
    Surroundings { variables: variables.iter().copied().collect(), host: "host1".to_owned(), ..Surroundings::default() }
}

fn member(around: &Surroundings) -> Placement {
    match place(around) {
        Ok(Place::Member(placement)) => *placement,
        other => panic!("{around:?}: {other:?}"),
    }
}

fn wrong(around: &Surroundings) -> String {
    let message = place(around).unwrap_err().to_string();
    assert_eq!(message.lines().count(), 1);
    message
}

const TORCHRUN: Pairs<'_> = &[
    ("RANK", "9"),
    ("WORLD_SIZE", "15"),
    ("LOCAL_RANK", "2"),
    ("LOCAL_WORLD_SIZE", "8"),
    ("MASTER_ADDR", "node1"),
    ("MASTER_PORT", "29500"),
    ("TORCHELASTIC_RUN_ID", "abc"),
];

const OPEN_MPI: Pairs<'_> = &[
    ("OMPI_COMM_WORLD_RANK", "1"),
    ("OMPI_COMM_WORLD_SIZE", "2"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
    ("PMIX_NAMESPACE", "prterun-host1-77@1"),
    ("PMIX_RANK", "1"),
];

/// Rank 7 of 7 + 8 on two nodes.
const SLURM: Pairs<'_> = &[
    ("SLURM_PROCID", "7"),
    ("SLURM_STEP_NUM_TASKS", "15"),
    ("SLURM_NTASKS", "15"),
    ("SLURM_LOCALID", "0"),
    ("SLURM_NODEID", "1"),
    ("SLURM_JOB_ID", "4711"),
    ("SLURM_STEP_ID", "0"),
    ("SLURM_STEP_NODELIST", "gpu[07-08]"),
    ("SLURM_STEP_TASKS_PER_NODE", "7,8"),
];

fn with(base: Pairs<'_>, more: Pairs<'_>) -> Surroundings {
    around(&[base, more].concat())
}

#[test]
fn each_launcher_says_rank_world_and_place_on_the_host() {
    type Expected = (&'static str, u32, u32, Option<u32>, Option<u32>);
    let table: &[(Pairs<'_>, Expected)] = &[
        (TORCHRUN, ("torchrun", 9, 15, Some(2), Some(8))),
        (OPEN_MPI, ("openmpi", 1, 2, Some(1), Some(2))),
        (SLURM, ("slurm", 7, 15, Some(0), Some(8))),
        (
            &[
                ("PMI_RANK", "3"),
                ("PMI_SIZE", "4"),
                ("MPI_LOCALRANKID", "1"),
                ("MPI_LOCALNRANKS", "4"),
                ("PMI_FD", "9"),
            ],
            ("pmi", 3, 4, Some(1), Some(4)),
        ),
        (&[("PMI_RANK", "3"), ("PMI_SIZE", "4")], ("pmi", 3, 4, None, None)),
        (
            &[
                ("MV2_COMM_WORLD_RANK", "0"),
                ("MV2_COMM_WORLD_SIZE", "4"),
                ("MV2_COMM_WORLD_LOCAL_RANK", "0"),
                ("MASTER_ADDR", "a"),
            ],
            ("mvapich", 0, 4, Some(0), None),
        ),
    ];
    for (variables, (launcher, rank, world, local_rank, local_world)) in table {
        let p = member(&around(variables));
        let found = (p.launcher, p.unit, p.index, p.of, p.local_rank, p.local_world);
        assert_eq!(found, (*launcher, Unit::Rank, *rank, *world, *local_rank, *local_world));
    }
}

#[test]
fn a_pod_stands_for_its_node() {
    let pytorch = [("PET_NODE_RANK", "1"), ("PET_NNODES", "2"), ("PET_NPROC_PER_NODE", "7"), ("MASTER_ADDR", "m")];
    let p = member(&around(&pytorch));
    assert_eq!((p.launcher, p.unit, p.index, p.of, p.local_world), ("pytorchjob", Unit::Node, 1, 2, Some(7)));
    let trainer = [("PET_NODE_RANK", "1"), ("PET_NNODES", "2"), ("PET_MASTER_ADDR", "m"), ("PET_MASTER_PORT", "29400")];
    let address = member(&around(&trainer)).rendezvous;
    assert_eq!((address.host.as_str(), &address.ports[..]), ("m", &[30400][..]));
    let older = [("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "m"), ("KUBERNETES_SERVICE_HOST", "10.0.0.1")];
    let p = member(&around(&older));
    assert_eq!((p.launcher, p.unit, p.index, p.of, p.local_world), ("pytorchjob", Unit::Node, 1, 2, None));

    let mut job = around(&[("JOB_COMPLETION_INDEX", "3")]);
    assert!(wrong(&job).contains("JOB_COMPLETION_INDEX=3, but the number of pods (--nodes) is not set"));
    job.options.nodes = Some(4);
    job.host = "collcheck-3.hosts.default.svc.cluster.local".to_owned();
    let p = member(&job);
    assert_eq!((p.launcher, p.unit, p.index, p.of), ("kubernetes", Unit::Node, 3, 4));
    assert_eq!(p.rendezvous.host, "collcheck-0.hosts.default.svc.cluster.local");
    job.host = "collcheck-3".to_owned();
    assert!(wrong(&job).contains("kubernetes does not say where rank 0 is"));
}

#[test]
fn uneven_nodes_are_no_contradiction() {
    let p = member(&around(SLURM));
    assert_eq!(p.hosts.iter().filter(|host| *host == "gpu07").count(), 7);
    assert_eq!(p.hosts.iter().filter(|host| *host == "gpu08").count(), 8);
    assert_eq!(p.rendezvous.host, "gpu07");
    let first = with(SLURM, &[("SLURM_PROCID", "6"), ("SLURM_LOCALID", "6"), ("SLURM_NODEID", "0")]);
    assert_eq!(member(&first).local_world, Some(7));
    let torchrun = with(TORCHRUN, &[("RANK", "6"), ("LOCAL_RANK", "6"), ("LOCAL_WORLD_SIZE", "7")]);
    assert_eq!(member(&torchrun).local_world, Some(7));
}

#[test]
fn tasks_dealt_out_in_turn_are_not_given_hosts_in_blocks() {
    let p = member(&with(SLURM, &[("SLURM_DISTRIBUTION", "cyclic")]));
    assert_eq!(p.hosts, ["gpu07"]);
}

#[test]
fn torchrun_comes_before_open_mpi_pmi_slurm_and_kubernetes() {
    let same = [("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "2")];
    let all = [&same[..], OPEN_MPI, &[("JOB_COMPLETION_INDEX", "0")]].concat();
    let torchrun = [("RANK", "1"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "1"), ("MASTER_ADDR", "a")];
    assert_eq!(member(&with(&all, &torchrun)).launcher, "torchrun");
    assert_eq!(member(&around(&all)).launcher, "openmpi");
    assert_eq!(member(&around(&same)).launcher, "pmi");
    // a triple with a hole is none
    assert_eq!(member(&with(&same, &[("RANK", "0")])).launcher, "pmi");
}

#[test]
fn a_launcher_that_started_one_process_a_node_does_not_contradict_the_one_within() {
    let slurm = [
        ("SLURM_PROCID", "1"),
        ("SLURM_STEP_NUM_TASKS", "2"),
        ("SLURM_LOCALID", "0"),
        ("SLURM_NODEID", "1"),
        ("SLURM_STEP_TASKS_PER_NODE", "1(x2)"),
    ];
    assert_eq!(member(&with(&slurm, TORCHRUN)).index, 9);
    let pod = [("PET_NODE_RANK", "1"), ("PET_NNODES", "2"), ("PET_NPROC_PER_NODE", "8")];
    assert_eq!(member(&with(&pod, TORCHRUN)).index, 9);
}

#[test]
fn two_launchers_that_disagree_are_both_named() {
    for (one, other) in [
        (OPEN_MPI, &[("PMI_RANK", "0"), ("PMI_SIZE", "2")][..]),
        (OPEN_MPI, &[("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "4")]),
        (OPEN_MPI, &[("RANK", "1"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "4")]),
        // N runs of one rank each
        (SLURM, &[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1")]),
        (SLURM, &[("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0")]),
    ] {
        let both = with(one, other);
        let message = wrong(&both);
        assert!(
            message.contains(" and ") && message.contains("disagree") && message.contains("--launcher"),
            "{message}"
        );
        let named = Options { launcher: "openmpi".parse().unwrap(), ..Options::default() };
        if one == OPEN_MPI {
            let named = Surroundings { options: named, ..both };
            assert_eq!(member(&named).launcher, "openmpi");
        }
    }
    let message = wrong(&with(OPEN_MPI, &[("PMI_RANK", "0"), ("PMI_SIZE", "2")]));
    assert!(
        message.contains("openmpi (OMPI_COMM_WORLD_RANK=1, OMPI_COMM_WORLD_SIZE=2) and pmi (PMI_RANK=0, PMI_SIZE=2)")
    );
}

#[test]
fn numbers_that_cannot_be_are_refused_by_name() {
    let torchrun = |more: Pairs<'_>| wrong(&with(TORCHRUN, more));
    for (message, expected) in [
        (torchrun(&[("RANK", "15")]), "RANK=15 is not below WORLD_SIZE=15"),
        (torchrun(&[("LOCAL_RANK", "8")]), "LOCAL_RANK=8 is not below LOCAL_WORLD_SIZE=8"),
        (torchrun(&[("LOCAL_WORLD_SIZE", "16")]), "LOCAL_WORLD_SIZE=16 is more than WORLD_SIZE=15"),
        (torchrun(&[("WORLD_SIZE", "0")]), "RANK=9 is not below WORLD_SIZE=0"),
        (torchrun(&[("RANK", "-1")]), "RANK=-1 is not a whole number"),
        (torchrun(&[("WORLD_SIZE", "99999999999")]), "WORLD_SIZE=99999999999 is not a whole number"),
        (torchrun(&[("MASTER_PORT", "70000")]), "MASTER_PORT=70000 is not an address"),
        (torchrun(&[("NCCL_COMM_ID", "node1")]), "NCCL_COMM_ID=node1 is not an address: expected HOST:PORT"),
        (wrong(&around(&[("RANK", "1")])), "RANK=1, but WORLD_SIZE is not set"),
        (wrong(&around(&[("RANK", "1"), ("WORLD_SIZE", "2")])), "RANK=1, but LOCAL_RANK is not set"),
        (wrong(&around(&[("WORLD_SIZE", "2")])), "WORLD_SIZE=2, but RANK is not set"),
        (
            wrong(&around(&[("OMPI_COMM_WORLD_RANK", "1")])),
            "OMPI_COMM_WORLD_RANK=1, but OMPI_COMM_WORLD_SIZE is not set",
        ),
        (wrong(&around(&[("PMI_RANK", "1")])), "PMI_RANK=1, but PMI_SIZE is not set"),
        (wrong(&around(&[("MV2_COMM_WORLD_SIZE", "2")])), "MV2_COMM_WORLD_SIZE=2, but MV2_COMM_WORLD_RANK is not set"),
        (wrong(&around(&[("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "0")])), "but SLURM_STEP_NUM_TASKS is not set"),
        (
            wrong(&around(&[("PMIX_RANK", "1"), ("PMIX_NAMESPACE", "x")])),
            "PMIX_RANK=1, but the number of ranks (--ranks)",
        ),
        (
            wrong(&around(&[("PET_NODE_RANK", "0"), ("PET_NNODES", "2"), ("PET_NPROC_PER_NODE", "0")])),
            "PET_NPROC_PER_NODE=0: a node has at least one rank",
        ),
    ] {
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn the_command_line_must_count_as_the_launcher_does() {
    let mut around = around(OPEN_MPI);
    around.options.ranks = Some(4);
    assert!(wrong(&around).contains("--ranks 4, but openmpi has started OMPI_COMM_WORLD_SIZE=2"));
    around.options.ranks = Some(2);
    assert_eq!(member(&around).of, 2);
    around.options.launcher = "none".parse().unwrap();
    assert_eq!(place(&around), Ok(Place::Alone(None)));
    around.options.launcher = "slurm".parse().unwrap();
    assert!(wrong(&around).contains("--launcher slurm: this process was not started by it"));
    assert!("mpirun".parse::<Choice>().unwrap_err().contains("openmpi"));
}

#[test]
fn one_process_alone_is_as_without_a_launcher() {
    let alone = |variables: Pairs<'_>| place(&around(variables)) == Ok(Place::Alone(None));
    assert!(alone(&[]));
    assert!(alone(&[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1")]));
    assert!(alone(&[("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")]));
    // a batch script is no step, and an empty variable is none
    assert!(alone(&[
        ("SLURM_PROCID", "0"),
        ("SLURM_NTASKS", "8"),
        ("SLURM_JOB_ID", "1"),
        ("SLURM_JOB_NUM_NODES", "1")
    ]));
    assert!(alone(&[("RANK", ""), ("WORLD_SIZE", " ")]));
    let batch = [("SLURM_NTASKS", "16"), ("SLURM_JOB_ID", "1"), ("SLURM_JOB_NUM_NODES", "2")];
    assert!(matches!(place(&around(&batch)), Ok(Place::Alone(Some(note))) if note.contains("srun collcheck")));
}

#[test]
fn a_launcher_whose_variables_are_lost_is_noticed() {
    let by = |ancestors: &[&str], variables: Pairs<'_>| Surroundings {
        ancestors: ancestors.iter().map(|name| (*name).to_owned()).collect(),
        ..around(variables)
    };
    assert!(wrong(&by(&["env", "prterun"], &[])).contains("prterun has started this process, but its variables"));
    assert!(wrong(&by(&["slurmstepd"], &[])).contains("N runs of one rank"));
    assert!(wrong(&by(&[], &[("PMI_FD", "7")])).contains("who sets PMI_FD has started this process"));
    assert_eq!(place(&by(&["bash", "slurmstepd"], &[("SLURM_JOB_ID", "1")])), Ok(Place::Alone(None)));
    assert_eq!(place(&by(&["bash", "sshd"], &[])), Ok(Place::Alone(None)));
    assert_eq!(member(&by(&["mpirun"], OPEN_MPI)).index, 1);
}

#[test]
fn rank_0_is_met_where_the_most_explicit_says() {
    let mut around = around(TORCHRUN);
    let address = |around: &Surroundings| member(around).rendezvous;
    assert_eq!(address(&around), Address { host: "node1".into(), ports: vec![30_500], local: false });
    around.variables = [TORCHRUN, &[("NCCL_COMM_ID", "[::1]:7000")]].concat().into_iter().collect();
    assert_eq!(address(&around), Address { host: "::1".into(), ports: vec![7000], local: true });
    around.options.rendezvous = Some("head:99".parse().unwrap());
    assert_eq!(address(&around), Address { host: "head".into(), ports: vec![99], local: false });
    let high = with(TORCHRUN, &[("MASTER_PORT", "65500"), ("MASTER_ADDR", "localhost")]);
    assert_eq!(address(&high), Address { host: "localhost".into(), ports: vec![64_500], local: true });
}

#[test]
fn without_an_address_one_host_is_enough_and_several_are_asked_for_it() {
    let one = member(&around(OPEN_MPI));
    assert!(one.rendezvous.local && one.rendezvous.ports.iter().all(|port| (20_000..30_000).contains(port)));
    let peer =
        with(OPEN_MPI, &[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_LOCAL_RANK", "0"), ("PMIX_RANK", "0")]);
    assert_eq!(member(&peer).rendezvous, one.rendezvous);
    assert_eq!(member(&peer).token, one.token);
    let other = member(&with(OPEN_MPI, &[("PMIX_NAMESPACE", "prterun-host1-78@1")]));
    assert!(other.rendezvous.ports != one.rendezvous.ports && other.token != one.token);
    let several = with(OPEN_MPI, &[("OMPI_COMM_WORLD_LOCAL_SIZE", "1"), ("OMPI_COMM_WORLD_LOCAL_RANK", "0")]);
    assert!(wrong(&several).contains("set MASTER_ADDR to its host for all ranks"));
    assert_eq!(member(&with(OPEN_MPI, &[("COLLCHECK_TOKEN", "secret")])).token, "secret");
}

#[test]
fn addresses_are_read_as_nccl_reads_them() {
    let of = |text: &str| text.parse::<Endpoint>().map(|e| (e.host, e.port));
    assert_eq!(of("10.0.0.1:29400"), Ok(("10.0.0.1".to_owned(), 29_400)));
    assert_eq!(of("[fe80::1]:1"), Ok(("fe80::1".to_owned(), 1)));
    for bad in ["", "host", "host:", "host:0", "host:65536", ":1", "fe80::1:1", "[]:1", "a b:1"] {
        assert!(of(bad).is_err(), "{bad}");
    }
}
