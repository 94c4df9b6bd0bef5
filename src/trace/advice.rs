//! What to look at and do next, per class: the leaves of the decision trees for a hang.
//!
//! `{ranks}`, `{hosts}`, `{operation}`, `{communicator}` and `{sequence}` are filled in; a line that needs what is not
//! known is left out.

use super::text;
use super::verdict::{Class, Verdict};

/// Steps of a class, in the order in which to take them.
const STEPS: &[(Class, &[&str])] = &[
    (
        Class::ASize,
        &[
            "Look at the call site of {ranks} for call {sequence} of {communicator} and print the tensor's shape there on all ranks.",
            "Look for what makes the size depend on the rank: uneven shards, a last batch that is short, padding done on some ranks only.",
            "Assert that all ranks agree on the size before the call; in PyTorch run once with TORCH_DISTRIBUTED_DEBUG=DETAIL, which compares shapes across ranks.",
        ],
    ),
    (
        Class::ADtype,
        &[
            "Look at the call site of {ranks} for call {sequence} of {communicator} and print the tensor's dtype there on all ranks.",
            "Look for a cast or an autocast region that only some ranks pass through.",
            "Cast right before the call, or assert the dtype there on all ranks.",
        ],
    ),
    (
        Class::BOrder,
        &[
            "Compare the stack of {ranks} at call {sequence} of {communicator} with another rank's.",
            "Look for a branch on the rank or on data that puts another call, root or reduction in front, and for loops over unordered sets.",
            "Make all ranks issue the collectives of a communicator in one order; keep evaluation and logging on one rank free of collectives.",
        ],
    ),
    (
        Class::BCount,
        &[
            "Compare the stack of {ranks} at call {sequence} of {communicator} with another rank's: they are at different steps.",
            "Look for a branch that only {ranks} took and that leaves out or adds a call: an `if` on the rank or on data, an early `continue`, a shorter data shard.",
            "Move the call out of the branch, so that every rank makes it whatever its data.",
            "If all sizes are equal, give each step another size and run again: then the step shows at which the counts part.",
        ],
    ),
    (
        Class::CUnpaired,
        &[
            "Look for the partner of {operation} in the code that {ranks} ran: is it missing, behind another call, or addressed to another peer?",
            "Compare the number of micro-batches, and of warm-up and cool-down steps, on both sides of the pipeline boundary.",
            "Write send and recv of a boundary in one place and post them as one group (ncclGroupStart/End, batch_isend_irecv).",
        ],
    ),
    (
        Class::DCrossed,
        &[
            "Compare the order in which {ranks} and the others enter the communicators named.",
            "Make all ranks enter them in one order, or let one stream depend on the other so that the order is fixed.",
            "Where both must be in flight, group the calls into one launch.",
        ],
    ),
    (
        Class::ECrash,
        &[
            "Read the end of the stderr of {ranks}: an exception, an out-of-memory error, a failed assertion.",
            "On {hosts}: search the kernel log for `Killed process`, `segfault` and `Xid`.",
            "Repair that cause first; the hang of the others only follows from it.",
            "In PyTorch set TORCH_NCCL_PROPAGATE_ERROR=1, so that the other ranks stop early next time.",
        ],
    ),
    (
        Class::EStuck,
        &[
            "Take the stack of {ranks} now: py-spy dump --pid PID, and gdb -p PID -batch -ex 'thread apply all bt' below Python.",
            "Look there for a checkpoint being written, a data loader, a lock, the interpreter lock, or a signal that stopped the process.",
            "On {hosts}: check storage and CPU load.",
            "Do not raise the timeout: it detects the wait and does not cause it.",
        ],
    ),
    (
        Class::FFabric,
        &[
            "Look at the links of {ranks}: port and cable, the switch's counters, firewall rules, and which interface each uses.",
            "Search all ranks' NCCL WARN lines for completion errors, Cuda failures and closed sockets, and note which peer they name.",
            "On {hosts}: read the kernel log for Xid and mlx5 lines, and nvidia-smi -q for ECC and Xid counts.",
            "On every host: check ibstat (State, Rate), nvidia-smi nvlink -s, and the switch's port error counters.",
            "With no message at all: see with cuda-gdb (info cuda kernels) that the kernels spin, then compare with another NCCL version.",
            "Run the same case on half of the ranks, then on the other half, to corner the link.",
        ],
    ),
    (
        Class::Init,
        &[
            "See whether the processes of {ranks} run, reached the set-up of the communicator, and were started with the same number of ranks as all others (WORLD_SIZE, -n).",
            "Check that all hosts reach the rendezvous address, and that NCCL_SOCKET_IFNAME names an interface that they share.",
            "Run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,BOOTSTRAP,NET and compare the last line of each rank.",
        ],
    ),
    (Class::None, &[]),
    (
        Class::Undetermined,
        &[
            "Count the processes, and take the stacks of all of them (py-spy dump).",
            "Collect the records of all ranks: Flight Recorder dumps, or NCCL logs with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL.",
            "Collect NCCL WARN lines and the kernel logs of all hosts, then diagnose again with everything.",
        ],
    ),
];

/// The steps for a verdict, then one for each other candidate.
pub fn next_steps(verdict: &Verdict, hosts: &[String]) -> Vec<String> {
    let steps_of = |class: Class| STEPS.iter().find(|(c, _)| *c == class).map_or(&[][..], |(_, steps)| steps);
    let mut steps: Vec<String> = steps_of(verdict.class).iter().filter_map(|s| fill(s, verdict, hosts)).collect();
    for other in verdict.candidates.iter().filter(|class| **class != verdict.class) {
        let first = steps_of(*other).iter().find_map(|step| fill(step, verdict, hosts));
        steps.extend(first.map(|step| format!("If it is {other} instead: {step}")));
    }
    steps
}

fn fill(step: &str, verdict: &Verdict, hosts: &[String]) -> Option<String> {
    let ranks = (!verdict.culprit_ranks.is_empty()).then(|| text::ranks(&verdict.culprit_ranks));
    let hosts = (!hosts.is_empty()).then(|| hosts.join(", "));
    let sequence = verdict.sequence.map(|n| n.to_string());
    let values = [
        ("{ranks}", ranks),
        ("{hosts}", hosts),
        ("{operation}", verdict.operation.clone()),
        ("{communicator}", verdict.communicator.clone()),
        ("{sequence}", sequence),
    ];
    let mut text = step.to_owned();
    for (name, value) in values {
        if text.contains(name) {
            text = text.replace(name, &value?);
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Class; 12] = [
        Class::ASize,
        Class::ADtype,
        Class::BOrder,
        Class::BCount,
        Class::CUnpaired,
        Class::DCrossed,
        Class::ECrash,
        Class::EStuck,
        Class::FFabric,
        Class::Init,
        Class::None,
        Class::Undetermined,
    ];

    #[test]
    fn every_class_but_none_has_steps_even_if_nothing_else_is_known() {
        for class in ALL {
            let verdict = Verdict { class, ..Verdict::default() };
            assert_eq!(next_steps(&verdict, &[]).is_empty(), class == Class::None, "{class}");
        }
    }

    #[test]
    fn no_step_keeps_a_gap() {
        for class in ALL {
            for culprit_ranks in [vec![], vec![3]] {
                let verdict = Verdict { class, candidates: ALL.to_vec(), culprit_ranks, ..Verdict::default() };
                for step in next_steps(&verdict, &[]) {
                    assert!(!step.contains('{'), "{step}");
                }
            }
        }
    }
}
