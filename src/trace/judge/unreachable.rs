//! F by absence: nothing is heard from a host any more, neither of its processes nor of its kernel.
//!
//! A process that ends, hangs or is stopped leaves a kernel behind that answers for it. So silence speaks of the way to the
//! host or of the host as a whole, and not of what the program does.

use std::collections::BTreeMap;

use super::presence::attach;
use super::{Facts, Finding};
use crate::trace::incident::Liveness;
use crate::trace::text::ranks;
use crate::trace::verdict::Class;

/// Ranks of which nothing is heard, by host.
pub(super) fn find(facts: &Facts<'_>) -> Option<Finding> {
    let silent: Vec<usize> =
        (0..facts.alignment.ranks.len()).filter(|track| seconds(facts.liveness(*track)).is_some()).collect();
    let longest = silent.iter().filter_map(|track| seconds(facts.liveness(*track))).max()?;
    let mut hosts: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for track in &silent {
        hosts.entry(host(facts, *track)).or_default().push(facts.rank(*track));
    }
    let named = hosts.iter().map(|(host, own)| match *host {
        "" => ranks(own),
        host => format!("host {host} ({})", ranks(own)),
    });
    let named: Vec<String> = named.collect();
    // a host that is down is as silent as one that is cut off
    let mut finding = Finding::new(vec![Class::FFabric, Class::ECrash], String::new());
    attach(facts, &mut finding, &silent);
    let waits = finding.place.as_ref().map_or(String::new(), |place| {
        format!(": others wait in call {} of {} ({})", place.sequence, place.communicator, place.operation)
    });
    finding.summary = format!("no word from {} for {longest} s{waits}", named.join(", "));
    finding.culprits = facts.ranks(&silent);
    others(facts, &silent, &hosts, &mut finding);
    Some(finding)
}

fn seconds(liveness: Liveness) -> Option<u32> {
    match liveness {
        Liveness::Unreachable { seconds } => Some(seconds),
        _ => None,
    }
}

fn host<'f>(facts: &'f Facts<'_>, track: usize) -> &'f str {
    facts.alignment.ranks.get(track).and_then(|rank| rank.evidence).map_or("", |evidence| &evidence.host)
}

/// What ranks that are heard of tell about those that are not.
fn others(facts: &Facts<'_>, silent: &[usize], hosts: &BTreeMap<&str, Vec<u32>>, finding: &mut Finding) {
    let heard: Vec<usize> = (0..facts.alignment.ranks.len()).filter(|track| !silent.contains(track)).collect();
    for (name, _) in hosts.iter().filter(|(name, _)| !name.is_empty()) {
        let there: Vec<usize> = heard.iter().copied().filter(|track| host(facts, *track) == *name).collect();
        if !there.is_empty() {
            let says = format!("{} on it can be heard: not the whole host is cut off", ranks(&facts.ranks(&there)));
            finding.says(format!("host {name}"), says);
        }
    }
    let mut left: Vec<&str> = heard.iter().map(|track| host(facts, *track)).collect();
    left.dedup();
    if let [only] = left[..]
        && !only.is_empty()
        && !hosts.contains_key(only)
    {
        let says = format!("no other host than {only}, which looks, can be heard: it may be {only} that is cut off");
        finding.says("hosts", says);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Primitive;
    use crate::trace::call::{Call, Operation, State};
    use crate::trace::{Communicator, Diagnosis, Incident, RankEvidence, Setup, judge};

    const SILENT: Liveness = Liveness::Unreachable { seconds: 5 };

    /// Two ranks on each of `hosts`, all of which wait in one call; those that are silent have left no record.
    fn held(hosts: &[&str], silent: &[u32]) -> Incident {
        let rank = |(rank, host): (u32, &str)| {
            let gone = silent.contains(&rank);
            let call = Call {
                state: State::Running,
                started_ns: Some(1),
                ..Call::new(1, 7, Operation::Collective(Primitive::AllReduce))
            };
            RankEvidence {
                rank,
                host: host.to_owned(),
                liveness: if gone { SILENT } else { Liveness::Alive },
                calls: (!gone).then(|| vec![call]),
                ..RankEvidence::default()
            }
        };
        let ranks: Vec<RankEvidence> = (0..).zip(hosts.iter().flat_map(|host| [*host; 2])).map(rank).collect();
        let all = (0..ranks.len() as u32).collect();
        let communicators = vec![Communicator { id: 1, label: "world".to_owned(), ranks: all }];
        Incident { world: Some(ranks.len() as u32), ranks, communicators }
    }

    fn found(diagnosis: &Diagnosis) -> (Class, &[u32], &str) {
        let verdict = &diagnosis.verdict;
        (verdict.class, &verdict.culprit_ranks, &verdict.summary)
    }

    fn says(diagnosis: &Diagnosis, what: &str) -> bool {
        diagnosis.evidence.iter().any(|evidence| evidence.says.contains(what))
    }

    #[test]
    fn a_silent_host_is_the_fabric_and_no_crash_and_nobody_stuck() {
        let diagnosis = judge(&held(&["a", "b", "c"], &[2, 3]));
        let summary = "no word from host b (ranks 2, 3) for 5 s: others wait in call 7 of world (all_reduce)";
        assert_eq!(found(&diagnosis), (Class::FFabric, &[2, 3][..], summary));
        assert_eq!(diagnosis.verdict.candidates, [Class::FFabric, Class::ECrash]);
        assert!(diagnosis.next_steps.iter().any(|step| step.starts_with("On b: ")), "{:?}", diagnosis.next_steps);
        assert!(!says(&diagnosis, "no other host") && !says(&diagnosis, "not the whole host"));
    }

    #[test]
    fn where_no_other_host_answers_the_one_that_looks_may_be_cut_off() {
        let diagnosis = judge(&held(&["a", "b", "c"], &[2, 3, 4, 5]));
        let (class, culprits, summary) = found(&diagnosis);
        assert_eq!((class, culprits), (Class::FFabric, &[2, 3, 4, 5][..]));
        assert!(summary.starts_with("no word from host b (ranks 2, 3), host c (ranks 4, 5) for 5 s"), "{summary}");
        assert!(says(&diagnosis, "it may be a that is cut off"));
    }

    #[test]
    fn a_rank_whose_neighbour_can_be_heard_is_said_to_be_cut_off_alone() {
        let diagnosis = judge(&held(&["a", "b", "c"], &[3]));
        let summary = "no word from host b (rank 3) for 5 s: others wait in call 7 of world (all_reduce)";
        assert_eq!(found(&diagnosis), (Class::FFabric, &[3][..], summary));
        assert!(says(&diagnosis, "rank 2 on it can be heard"));
    }

    #[test]
    fn a_host_that_is_silent_during_the_set_up_is_the_fabric_too() {
        let mut incident = held(&["a", "b"], &[2, 3]);
        for evidence in &mut incident.ranks {
            evidence.calls = Some(Vec::new());
            evidence.setups = vec![Setup { comm: 1, done: false, ranks: None }];
        }
        assert_eq!(found(&judge(&incident)), (Class::FFabric, &[2, 3][..], "no word from host b (ranks 2, 3) for 5 s"));
    }

    #[test]
    fn a_worker_that_died_elsewhere_is_told_beside_it() {
        let mut incident = held(&["a", "b", "c"], &[2, 3]);
        incident.ranks[5].liveness = Liveness::Exited { code: None, signal: Some(9) };
        let diagnosis = judge(&incident);
        assert_eq!(diagnosis.verdict.class, Class::FFabric);
        assert!(says(&diagnosis, "the process is ended by SIGKILL"), "{:?}", diagnosis.evidence);
    }
}
