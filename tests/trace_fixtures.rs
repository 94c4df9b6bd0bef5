//! The four incidents recorded on 2 x H200 with PyTorch 2.11 and NCCL 2.28.9, rebuilt from what their dumps say. Their
//! Flight Recorder ran without timing: it knows no starts.

mod trace_support;

use collcheck::trace::call::State;
use collcheck::trace::{Class, Diagnosis, Incident, judge};
use trace_support::{Machine, Step, all_reduce, lab, programs, recv, send};

fn machine() -> Machine {
    Machine { starts: false, ..Machine::new(2) }
}

fn judged(incident: &Incident) -> Diagnosis {
    let diagnosis = judge(incident);
    println!("{}", serde_json::to_string_pretty(&diagnosis).unwrap());
    assert!(!diagnosis.evidence.is_empty() && !diagnosis.next_steps.is_empty());
    diagnosis
}

/// What a call of the dump looked like.
fn last(incident: &Incident, rank: usize) -> (u64, Option<u64>, State) {
    let call = incident.ranks[rank].calls.as_ref().unwrap().last().unwrap();
    (call.seq, call.count, call.state)
}

#[test]
fn size_mismatch_is_a_size_by_rank_1() {
    let incident = machine().run(&programs(2, |rank| {
        let mut steps = lab(8);
        if rank == 1 {
            steps[5] = all_reduce(6 * 65_536 + 1_024);
        }
        steps
    }));
    assert_eq!(last(&incident, 0), (6, Some(393_216), State::Queued));
    assert_eq!(last(&incident, 1), (6, Some(394_240), State::Queued));
    let v = judged(&incident).verdict;
    assert_eq!((v.class, &v.candidates[..], &v.culprit_ranks[..]), (Class::ASize, &[Class::ASize][..], &[1][..]));
    assert_eq!(
        (v.communicator.as_deref(), v.sequence, v.operation.as_deref()),
        (Some("default_pg"), Some(6), Some("all_reduce"))
    );
}

#[test]
fn count_mismatch_is_a_skipped_call_first_and_a_size_also() {
    let incident = machine().run(&programs(2, |rank| {
        let mut steps = lab(8);
        if rank == 1 {
            steps.remove(5);
        }
        steps
    }));
    assert_eq!(last(&incident, 0), (6, Some(393_216), State::Queued));
    assert_eq!(last(&incident, 1), (6, Some(458_752), State::Queued));
    let v = judged(&incident).verdict;
    assert_eq!((v.class, &v.candidates[..]), (Class::BCount, &[Class::BCount, Class::ASize][..]));
    assert_eq!((&v.culprit_ranks[..], v.sequence), (&[1][..], Some(6)));
}

#[test]
fn unpaired_sendrecv_is_a_send_that_rank_1_does_not_receive() {
    let incident = Machine { depth: 1, ..machine() }.run(&programs(2, |rank| {
        let step = |(k, call): (usize, Step)| {
            let mut steps = vec![call];
            match rank {
                0 => steps.push(send(1, 67_108_864)),
                _ if k != 5 => steps.push(recv(0, 67_108_864)),
                _ => {}
            }
            steps
        };
        let steps: Vec<Step> = lab(8).into_iter().enumerate().flat_map(step).collect();
        // Rank 0 is held in its send by the host, so that nothing is queued behind it.
        if rank == 0 { steps.into_iter().take(12).collect() } else { steps }
    }));
    // As in the dump: the recv that would fit is there, behind an all_reduce that rank 0 does not reach.
    assert_eq!(last(&incident, 0), (6, Some(67_108_864), State::Queued));
    assert_eq!(last(&incident, 1), (6, Some(67_108_864), State::Queued));
    let v = judged(&incident).verdict;
    assert_eq!((v.class, &v.culprit_ranks[..]), (Class::CUnpaired, &[1][..]));
    assert_eq!((v.sequence, v.operation.as_deref()), (Some(6), Some("send 0->1")));
    assert!(v.summary.contains("rank 0's send 0->1 has no recv on rank 1"), "{}", v.summary);
}

#[test]
fn stuck_is_rank_1_outside_of_communication() {
    let mut incident = machine().run(&programs(2, |rank| {
        let mut steps = lab(8);
        if rank == 1 {
            steps[5] = Step::Sleep;
        }
        steps
    }));
    assert_eq!(last(&incident, 1), (5, Some(327_680), State::Completed));
    let v = judged(&incident).verdict;
    assert_eq!((v.class, &v.candidates[..], &v.culprit_ranks[..]), (Class::EStuck, &[Class::EStuck][..], &[1][..]));
    assert_eq!((v.sequence, v.operation.as_deref()), (Some(6), Some("all_reduce")));

    // The dumps are read after the watchdog and a timeout have ended both processes: that changes nothing.
    for (rank, code) in [(0, 134), (1, 124)] {
        incident.ranks[rank].liveness = collcheck::trace::Liveness::Exited { code: Some(code), signal: None };
    }
    let v = judged(&incident).verdict;
    assert_eq!((v.class, &v.culprit_ranks[..]), (Class::EStuck, &[1][..]));
}
