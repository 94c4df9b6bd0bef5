//! What must be said of a fault, and whether it was: pure data in, a judgement out.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Detector;
use crate::oracle::forensics;
use crate::trace::Class;

/// What must be said of a fault.
#[derive(Debug, Clone, Copy)]
pub struct Expectation {
    /// One of these must notice it and say the rest. Others may notice it too.
    pub by: &'static [Detector],
    /// What it must be called.
    pub called: Called,
    /// Whose it must be.
    pub who: Who,
}

/// What a fault must be called.
#[derive(Debug, Clone, Copy)]
pub enum Called {
    /// One of these classes of a verdict.
    Class(&'static [Class]),
    /// What the oracle makes of the wrong values, in words and as a rule.
    Values(&'static str, fn(&forensics::Fault) -> bool),
    /// Nothing beyond the place: a buffer or the zone around it.
    Place,
    /// Which sizes are slower.
    Curve(End),
}

/// Whose a fault must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// The rank that does it, and no other.
    Culprit,
    /// That of the rank that does it and the one before it together, as it is the way between them; nobody's where the ranks'
    /// calls do not tell which way it is.
    Ends,
    /// Nobody's.
    Nobody,
}

/// Sizes at which something is slower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Small messages: latency.
    Small,
    /// The middle: where algorithms and protocols change.
    Middle,
    /// Large messages: bandwidth.
    Large,
    /// All sizes.
    All,
    /// Others than these.
    Mixed,
}

impl End {
    /// For people, behind "slow: ".
    pub const fn words(self) -> &'static str {
        match self {
            End::Small => "small messages (latency)",
            End::Middle => "the middle of the curve (a switch of algorithm or protocol)",
            End::Large => "large messages (bandwidth)",
            End::All => "all sizes",
            End::Mixed => "some sizes, not at one end",
        }
    }

    /// From whether a small, a middle and a large size are slower; `None` if none is.
    pub const fn of(slower: [bool; 3]) -> Option<End> {
        Some(match slower {
            [false, false, false] => return None,
            [true, false, false] | [true, true, false] => End::Small,
            [false, true, false] => End::Middle,
            [false, false, true] | [false, true, true] => End::Large,
            [true, true, true] => End::All,
            [true, false, true] => End::Mixed,
        })
    }
}

/// What a detector calls something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    /// A class, and others that fit as well.
    Class(Class, Vec<Class>),
    /// What most of the wrong values are, if that is explained.
    Values(Option<forensics::Fault>),
    /// The place is all there is to say.
    Place,
    /// Sizes that are slower.
    Curve(End),
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Class(class, _) => write!(f, "{class}"),
            Name::Values(Some(fault)) => write!(f, "data: {fault}"),
            Name::Values(None) => f.write_str("data: unexplained"),
            Name::Place => f.write_str("data"),
            Name::Curve(end) => write!(f, "slow: {}", end.words()),
        }
    }
}

/// What one detector says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    /// Which.
    pub by: Detector,
    /// What it calls it.
    pub name: Name,
    /// Whose it is.
    pub culprits: Vec<u32>,
    /// The rest, for people.
    pub says: String,
}

impl Called {
    fn fits(&self, name: &Name) -> bool {
        match (self, name) {
            (Called::Class(classes), Name::Class(class, _)) => classes.contains(class),
            (Called::Values(_, rule), Name::Values(Some(fault))) => rule(fault),
            (Called::Place, Name::Place) => true,
            (Called::Curve(end), Name::Curve(seen)) => end == seen,
            _ => false,
        }
    }
}

impl fmt::Display for Called {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Called::Class(classes) => {
                let names: Vec<&str> = classes.iter().map(|class| class.name()).collect();
                f.write_str(&names.join(" or "))
            }
            Called::Values(words, _) => write!(f, "data: {words}"),
            Called::Place => f.write_str("data"),
            Called::Curve(end) => write!(f, "slow: {}", end.words()),
        }
    }
}

/// Whether one of the sightings is the one that was expected; else why not. `armed` is how often the culprit did it.
///
/// Of two ranks that disagree nothing tells which is wrong: both are to be named then.
pub fn judge<'a>(
    expected: &Expectation,
    culprit: u32,
    ranks: u32,
    armed: u64,
    sightings: &'a [Sighting],
) -> Result<&'a Sighting, String> {
    if armed == 0 {
        return Err(format!("rank {culprit} did not do it: nothing was there to be noticed"));
    }
    if sightings.is_empty() {
        return Err("nothing noticed it".to_owned());
    }
    let list = |all: &[Detector]| all.iter().map(|by| by.name()).collect::<Vec<_>>().join(" or ");
    let asked: Vec<&Sighting> = sightings.iter().filter(|seen| expected.by.contains(&seen.by)).collect();
    if asked.is_empty() {
        let others: Vec<Detector> = sightings.iter().map(|seen| seen.by).collect();
        return Err(format!("noticed by {} only, expected {}", list(&others), list(expected.by)));
    }
    let named: Vec<&&Sighting> = asked.iter().filter(|seen| expected.called.fits(&seen.name)).collect();
    if named.is_empty() {
        let called: Vec<String> = asked.iter().map(|seen| format!("{} by {}", seen.name, seen.by)).collect();
        return Err(format!("called {}, expected {}", called.join(", "), expected.called));
    }
    let mut ends = [super::fabric::previous(culprit, ranks), culprit];
    ends.sort_unstable();
    let wanted: &[u32] = match expected.who {
        Who::Culprit => &[culprit],
        Who::Ends => &ends,
        Who::Nobody => &[],
    };
    let untold = |seen: &Sighting| expected.who == Who::Ends && seen.culprits.is_empty();
    let tie = |seen: &Sighting| {
        ranks == 2 && expected.who == Who::Culprit && matches!(seen.name, Name::Class(..)) && seen.culprits == [0, 1]
    };
    match named.iter().find(|seen| seen.culprits == wanted || untold(seen) || tie(seen)) {
        Some(seen) => Ok(seen),
        None => {
            let blamed: Vec<String> = named.iter().map(|seen| format!("{:?} by {}", seen.culprits, seen.by)).collect();
            Err(format!("laid to ranks {}, expected {wanted:?}", blamed.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Expectation = Expectation {
        by: &[Detector::Deadline, Detector::Alignment],
        called: Called::Class(&[Class::ASize]),
        who: Who::Culprit,
    };

    fn seen(by: Detector, class: Class, culprits: &[u32]) -> Sighting {
        Sighting { by, name: Name::Class(class, vec![class]), culprits: culprits.to_vec(), says: String::new() }
    }

    fn why(expected: &Expectation, armed: u64, sightings: &[Sighting]) -> String {
        judge(expected, 1, 4, armed, sightings).unwrap_err()
    }

    #[test]
    fn a_fault_that_was_done_noticed_and_named_is_found_among_others() {
        let all = [seen(Detector::Value, Class::None, &[]), seen(Detector::Deadline, Class::ASize, &[1])];
        assert_eq!(judge(&SIZE, 1, 4, 1, &all), Ok(&all[1]));
    }

    #[test]
    fn each_thing_that_is_lacking_is_told_apart() {
        let right = seen(Detector::Deadline, Class::ASize, &[1]);
        assert!(why(&SIZE, 0, std::slice::from_ref(&right)).contains("did not do it"));
        assert!(why(&SIZE, 1, &[]).contains("nothing noticed"));
        assert!(why(&SIZE, 1, &[seen(Detector::Value, Class::ASize, &[1])]).contains("by value only"));
        let other = why(&SIZE, 1, &[seen(Detector::Deadline, Class::EStuck, &[1])]);
        assert!(other.contains("E.stuck by deadline, expected A.size"), "{other}");
        let blame = why(&SIZE, 1, &[seen(Detector::Deadline, Class::ASize, &[0, 1])]);
        assert!(blame.contains("[0, 1] by deadline, expected [1]"), "{blame}");
    }

    #[test]
    fn values_are_named_by_what_they_turn_out_to_be() {
        let expected = Expectation {
            by: &[Detector::Value],
            called: Called::Values("one bit flipped", |fault| matches!(fault, forensics::Fault::BitFlipped(_))),
            who: Who::Nobody,
        };
        let values = |fault: Option<forensics::Fault>| Sighting {
            by: Detector::Value,
            name: Name::Values(fault),
            culprits: Vec::new(),
            says: String::new(),
        };
        let (flip, zero) = (forensics::Fault::BitFlipped(Some(3)), forensics::Fault::Zero);
        assert!(judge(&expected, 1, 4, 1, &[values(Some(zero)), values(Some(flip))]).is_ok());
        assert!(why(&expected, 1, &[values(Some(zero))]).contains("called data: zero"));
        assert!(why(&expected, 1, &[values(None)]).contains("unexplained"));
    }

    #[test]
    fn an_end_of_the_curve_is_that_of_the_sizes_that_are_slower() {
        assert_eq!(End::of([false; 3]), None);
        assert_eq!(End::of([true, false, false]), Some(End::Small));
        assert_eq!(End::of([false, true, true]), Some(End::Large));
        assert_eq!(End::of([false, true, false]), Some(End::Middle));
        assert_eq!(End::of([true, false, true]), Some(End::Mixed));
    }

    #[test]
    fn a_broken_way_is_that_of_both_ends_or_of_nobody() {
        let expected =
            Expectation { by: &[Detector::Deadline], called: Called::Class(&[Class::FFabric]), who: Who::Ends };
        let of = |culprit, ranks, blamed: &[u32]| {
            judge(&expected, culprit, ranks, 1, &[seen(Detector::Deadline, Class::FFabric, blamed)]).is_ok()
        };
        assert!(of(1, 4, &[0, 1]) && of(3, 4, &[2, 3]) && of(1, 4, &[]) && of(1, 2, &[0, 1]));
        assert!(!of(1, 4, &[1]) && !of(1, 4, &[1, 2]) && !of(2, 4, &[0, 1]));
    }

    #[test]
    fn of_two_ranks_that_disagree_both_may_be_named_and_of_three_not() {
        let both = [seen(Detector::Deadline, Class::ASize, &[0, 1])];
        assert!(judge(&SIZE, 1, 2, 1, &both).is_ok());
        assert!(judge(&SIZE, 1, 3, 1, &both).is_err());
        assert!(judge(&SIZE, 1, 2, 1, &[seen(Detector::Deadline, Class::ASize, &[0])]).is_err());
    }
}
