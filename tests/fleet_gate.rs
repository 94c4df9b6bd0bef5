//! Where the workers of several agents of one machine meet, and what the coordinator hears of it.
//!
//! All but rank 0's process have the coordinator behind a port that writes down what passes, and may change it.

mod cli_support;
mod launch_support;
mod process_support;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use collcheck::run::result::{CaseResult, FailKind, Outcome};
use launch_support::{Codes, Job, Variables, free_port, stderr, torchrun};
use process_support::{children, send, within};
use rustix::process::Signal;
use serde_json::{Value, json};

const CASES: [&str; 5] = [
    "all_reduce::sum::float::1KiB",
    "all_gather::none::int8::64B",
    "broadcast::none::int8::8B",
    "reduce_scatter::max::half::1KiB",
    "alltoall::none::float::1KiB",
];

/// What may become of a message on the way.
type Change = fn(&mut Value);

/// A port before another one, and what workers have said through it.
struct Between {
    port: u16,
    said: Arc<Mutex<Vec<Value>>>,
}

impl Between {
    fn start(before: u16, change: Change) -> Between {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let between = Between { port: listener.local_addr().unwrap().port(), said: Arc::default() };
        let said = between.said.clone();
        std::thread::spawn(move || {
            for far in listener.incoming().map_while(Result::ok) {
                // who comes too early comes again
                let Ok(near) = TcpStream::connect(("127.0.0.1", before)) else { continue };
                let (back, forth) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                let said = said.clone();
                std::thread::spawn(move || {
                    pass(far, near, |message| {
                        change(message);
                        said.lock().unwrap().push(message.clone());
                    })
                });
                std::thread::spawn(move || pass(back, forth, change));
            }
        });
        between
    }

    /// All of one kind that was said.
    fn said(&self, kind: &str) -> Vec<Value> {
        self.said.lock().unwrap().iter().filter_map(|message| message.get(kind).cloned()).collect()
    }

    /// The ranks of each message with reports, in the order of slots.
    fn reports(&self) -> Vec<Vec<u64>> {
        let rank = |report: &Value| report["rank"].as_u64().unwrap();
        self.said("Reports").iter().map(|m| m["reports"].as_array().unwrap().iter().map(rank).collect()).collect()
    }
}

/// Passes messages on until there are no more.
fn pass(mut from: TcpStream, mut to: TcpStream, mut look: impl FnMut(&mut Value)) {
    let mut next = || -> std::io::Result<()> {
        let mut length = [0; 4];
        from.read_exact(&mut length)?;
        let mut body = vec![0; u32::from_be_bytes(length) as usize];
        from.read_exact(&mut body)?;
        let mut message: Value = serde_json::from_slice(&body)?;
        look(&mut message);
        let body = serde_json::to_vec(&message)?;
        to.write_all(&[&(body.len() as u32).to_be_bytes()[..], &body].concat())
    };
    while next().is_ok() {}
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// Starts so many processes, all but the first behind a port; `variables` are those of each with the port that it uses.
fn start(processes: u32, args: &[&str], change: Change, variables: impl Fn(u32, u16) -> Variables) -> (Job, Between) {
    let (port, mut job) = (free_port(), Job::new());
    let between = Between::start(port, change);
    for process in 0..processes {
        let port = if process == 0 { port } else { between.port };
        job.start(&[&variables(process, port)[..], &[("COLLCHECK_TOKEN", "gate".to_owned())]].concat(), args);
    }
    (job, between)
}

/// The same of a run whose cases all pass, to its end.
fn run(processes: u32, args: &[&str], change: Change, variables: impl Fn(u32, u16) -> Variables) -> Between {
    let args: Vec<&str> = ["-n", "2", "--exact"].into_iter().chain(CASES).chain(args.iter().copied()).collect();
    let (mut job, between) = start(processes, &args, change, variables);
    let outputs = job.wait();
    assert_eq!(outputs.map_codes(), vec![Some(0); processes as usize], "{}", stderr(&outputs[0]));
    assert_eq!(job.results(0).summary.passed, CASES.len() as u64);
    between
}

/// Two nodes of two ranks.
fn node(node: u32, port: u16) -> Variables {
    vec![
        ("PET_NODE_RANK", node.to_string()),
        ("PET_NNODES", "2".to_owned()),
        ("PET_NPROC_PER_NODE", "2".to_owned()),
        ("MASTER_ADDR", "localhost".to_owned()),
        ("MASTER_PORT", (port - 1000).to_string()),
    ]
}

#[test]
fn ranks_that_a_launcher_has_started_one_by_one_meet_at_one_gate_and_report_together() {
    let between = run(4, &[], |_| {}, |rank, port| torchrun(rank, 4, port));
    assert_eq!(between.said("Ready"), vec![json!({"gate": true}); 3]);
    assert_eq!(between.said("Meet"), Vec::<Value>::new());
    // the others through rank 0, which is not listened to
    let reports = between.reports();
    assert!(reports.len() <= CASES.len() && reports.iter().all(|ranks| ranks == &[0, 1, 2, 3]), "{reports:?}");
}

#[test]
fn nodes_of_one_machine_meet_at_one_gate() {
    let between = run(2, &[], |_| {}, node);
    assert_eq!((between.said("Ready").len(), between.said("Meet").len()), (2, 0));
    let reports = between.reports();
    assert!(reports.len() <= CASES.len() && reports.iter().all(|ranks| ranks == &[0, 1, 2, 3]), "{reports:?}");
}

#[test]
fn nodes_that_do_not_see_each_others_memory_have_a_gate_each() {
    let apart = |message: &mut Value| {
        if let Some(memory) = message.pointer_mut("/who/Agent/memory") {
            *memory = json!("elsewhere");
        }
    };
    let between = run(2, &["--host-transport", "tcp"], apart, node);
    assert_eq!(between.said("Ready"), vec![json!({"gate": true}); 2]);
    let meetings = between.said("Meet");
    assert!(meetings.len() >= CASES.len() && meetings.iter().all(|m| *m == json!({"together": 2, "well": true})));
    assert_eq!(between.reports(), vec![vec![2, 3]; CASES.len()]);
}

#[test]
fn where_one_worker_cannot_get_to_the_gate_each_speaks_for_itself() {
    let astray = |message: &mut Value| {
        let last = message.pointer("/Start/own/0/0") == Some(&json!(2));
        if let Some(path) = message.pointer_mut("/Start/gate/site/path").filter(|_| last) {
            *path = json!("/proc/self/fd/987654");
        }
    };
    let between = run(3, &[], astray, |rank, port| torchrun(rank, 3, port));
    let ready = between.said("Ready");
    assert!([true, false].iter().all(|gate| ready.contains(&json!({"gate": gate}))), "{ready:?}");
    let meetings = between.said("Meet");
    assert!(!meetings.is_empty() && meetings.iter().all(|m| *m == json!({"together": 1, "well": true})));
    let mut reports = between.reports();
    reports.sort();
    assert_eq!(reports, [vec![vec![1]; CASES.len()], vec![vec![2]; CASES.len()]].concat());
}

#[test]
fn where_the_gate_is_nowhere_each_speaks_for_itself() {
    let nowhere = |message: &mut Value| {
        if let Some(card) = message.pointer_mut("/who/Agent") {
            card["memory"] = json!("elsewhere");
            card["gate"] = json!({"path": "/nowhere", "key": 7});
        }
    };
    let between = run(2, &["--host-transport", "tcp"], nowhere, node);
    assert_eq!(between.said("Ready"), vec![json!({"gate": false}); 2]);
    assert!(between.said("Meet").iter().all(|m| m["together"] == json!(1)));
    let mut reports = between.reports();
    reports.sort();
    assert_eq!(reports, [vec![vec![2]; CASES.len()], vec![vec![3]; CASES.len()]].concat());
}

/// Names of so many small cases.
fn small(count: usize) -> Vec<String> {
    (1..=count).map(|n| format!("all_reduce::sum::float::{}B", 8 * n)).collect()
}

#[test]
fn a_gate_outlives_the_workers_that_met_at_it() {
    const RANKS: u32 = 3;
    const KILLS: usize = 4;
    let cases = small(200);
    let args: Vec<&str> = ["-n", "100", "--exact"].into_iter().chain(cases.iter().map(String::as_str)).collect();
    let (mut job, between) = start(RANKS, &args, |_| {}, |rank, port| torchrun(rank, RANKS, port));
    let mut killed = Vec::new();
    for _ in 0..KILLS {
        let before = between.reports().len();
        let mut worker = None;
        // all have met since the last was killed
        within(Duration::from_secs(60), "cases that run", || {
            worker = children(job.pid(2)).first().map(|child| child.pid).filter(|pid| !killed.contains(pid));
            worker.is_some() && between.reports().len() > before + 3
        });
        killed.extend(worker);
        killed.iter().for_each(|pid| send(*pid, Signal::KILL));
    }
    assert_eq!(job.wait().map_codes(), [Some(101); RANKS as usize]);
    let results = job.results(0);
    let crashed = results.cases.iter().filter(|case| case.kind == Some(FailKind::Crash)).count();
    assert_eq!((crashed, results.summary.passed), (KILLS, (cases.len() - KILLS) as u64));
    let together = between.reports().iter().filter(|ranks| ranks.len() == RANKS as usize).count();
    assert!(together > 3 * KILLS && between.reports().last().map(Vec::len) == Some(RANKS as usize), "{together}");
}

/// The memory of the gate that a process has made.
fn gate(pid: i32) -> Option<File> {
    let mut entries = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.filter_map(Result::ok);
    let ours = |path: &Path| fs::read_link(path).is_ok_and(|to| to == Path::new("/memfd:collcheck gate (deleted)"));
    entries.find(|entry| ours(&entry.path())).and_then(|entry| File::open(entry.path()).ok())
}

/// Which meeting of which case workers have come to last, and how many: see `src/fleet/processes/gate.rs`.
fn arrived(gate: &File) -> (u64, u64) {
    let mut word = [0; 8];
    let _ = gate.read_exact_at(&mut word, 8);
    let word = u64::from_ne_bytes(word);
    (word >> 16, word & 0xffff)
}

/// Runs some cases until rank 2 of three is stopped where the others wait for its report, and sends it that signal. The only
/// case that fails.
fn missed(signal: Signal, deadline: &str) -> CaseResult {
    const RANKS: u32 = 3;
    const LAST: u64 = 0xffff;
    let cases = small(300);
    let args: Vec<&str> =
        ["-n", "1", "--deadline", deadline, "--exact"].into_iter().chain(cases.iter().map(String::as_str)).collect();
    let (mut job, _) = start(RANKS, &args, |_| {}, |rank, port| torchrun(rank, RANKS, port));
    let mut seen = None;
    within(Duration::from_secs(60), "workers", || {
        let worker = children(job.pid(2)).first().map(|child| child.pid);
        seen = gate(job.pid(0)).zip(worker);
        seen.is_some()
    });
    let (gate, worker) = seen.unwrap();
    // One who has come to the last meeting but one before it was stopped is not at the last. How many a case has is learned.
    let (mut most, mut caught) = (1, false);
    while !caught && job.children[0].try_wait().unwrap().is_none() {
        let late = |_| Some(arrived(&gate)).filter(|(number, came)| number & LAST >= most && *came < u64::from(RANKS));
        let Some((number, _)) = (0..100_000).find_map(late) else { continue };
        send(worker, Signal::STOP);
        let missing = (number | LAST, u64::from(RANKS) - 1);
        let end = Instant::now() + Duration::from_millis(200);
        while !caught && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
            caught = arrived(&gate) == missing;
        }
        send(worker, if caught { signal } else { Signal::CONT });
        most = Some(number & LAST).filter(|meeting| *meeting < LAST).unwrap_or(most);
    }
    assert!(caught, "others were never seen to wait for it");
    assert_eq!(job.wait().map_codes(), [Some(101); RANKS as usize]);
    let results = job.results(0);
    assert_eq!(results.cases.len(), cases.len());
    let mut failed: Vec<CaseResult> = results.cases.into_iter().filter(|case| case.outcome == Outcome::Fail).collect();
    let messages: Vec<&str> = failed.iter().map(|case| case.message.as_str()).collect();
    assert_eq!(failed.len(), 1, "{messages:#?}");
    failed.remove(0)
}

#[test]
fn a_worker_that_is_killed_while_others_wait_for_its_report_is_found_at_once() {
    let case = missed(Signal::KILL, "60");
    assert_eq!(case.kind, Some(FailKind::Crash), "{}", case.message);
    assert!(case.message.contains("SIGKILL") && case.message.contains("at fault: rank 2"), "{}", case.message);
    assert!(case.duration_s < 60.0, "it was waited for");
}

#[test]
fn a_worker_that_is_stopped_while_others_wait_for_its_report_is_stuck() {
    let case = missed(Signal::STOP, "8");
    let verdict = case.verdict.as_ref().unwrap();
    assert_eq!((case.kind, &verdict.culprit_ranks[..]), (Some(FailKind::Hang), &[2][..]), "{}", case.message);
}
