//! Why ranks disagree: another argument, or another call. What they called next decides, else what they called before.

use super::align::{Alignment, Disagreement, Group, Key, Lane};
use super::call::{Call, Field};
use super::pattern::{progression, repetition};
use super::verdict::Class;

/// No larger shift is looked for.
const FURTHEST: usize = 8;
/// Calls before a disagreement that are looked at.
const HISTORY: usize = 4096;

/// How one rank's calls relate to the others' from the disagreement on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Story {
    /// It skipped so many calls: it goes on with the others' later ones.
    Skipped(usize),
    /// It made so many calls more: the others go on with its later ones.
    Extra(usize),
    /// It made two calls in the other order.
    Swapped,
    /// One call differs, the calls after it agree again.
    Single,
    /// Nothing follows that could tell, but what it calls is what was to come after this place.
    Ahead,
    /// Nothing follows that could tell, but it calls what was called before this place once more.
    Behind,
    /// Nothing follows that could tell, and what it calls was not to come: an argument.
    Alien,
    /// Nothing follows that could tell, but its call has another label: another place in the program.
    Elsewhere,
    /// Nothing tells.
    Open,
}

/// Who disagrees with whom, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Classes that fit, the likeliest first. Never empty.
    pub classes: Vec<Class>,
    /// Lanes that are in the wrong: more than one camp's where nothing breaks a tie.
    pub culprits: Vec<usize>,
    /// How the first of them relates to the others.
    pub story: Story,
    /// What decided, for people.
    pub because: Vec<String>,
    /// A camp that is in the right, where that is known.
    pub reference: Option<usize>,
}

/// Explains a disagreement.
pub fn explain(alignment: &Alignment<'_>, group: &Group<'_>, split: &Disagreement) -> Explanation {
    let view = View::new(alignment, group, split);
    let right = if split.majority { Some(0) } else { None };
    let (right, mut because) = match right {
        Some(camp) => (Some(camp), vec![view.majority()]),
        None => view.break_tie(),
    };
    let Some(right) = right else {
        because.push(view.tie());
        let culprits = split.camps.iter().flat_map(|camp| camp.lanes.iter().copied()).collect();
        let story = view.story(1, 0);
        return Explanation { classes: view.classes(story), culprits, story, because, reference: None };
    };
    let wrong: Vec<usize> = (0..split.camps.len()).filter(|camp| *camp != right).collect();
    let story = wrong.first().map_or(Story::Open, |camp| view.story(*camp, right));
    because.extend(view.tell(story));
    let culprits = wrong.iter().filter_map(|camp| split.camps.get(*camp)).flat_map(|c| c.lanes.clone()).collect();
    Explanation { classes: view.classes(story), culprits, story, because, reference: Some(right) }
}

struct View<'v, 'a> {
    split: &'v Disagreement,
    /// Per camp: its call at the place, and those that follow without a gap.
    from: Vec<Vec<&'a Call>>,
    /// What all called before, without a gap.
    history: Vec<&'a Call>,
}

impl<'v, 'a> View<'v, 'a> {
    fn new(alignment: &'v Alignment<'a>, group: &'v Group<'a>, split: &'v Disagreement) -> Self {
        let calls = |lane: &'v Lane| {
            let at = lane.calls.partition_point(|(key, _)| *key < split.key);
            let call = |(_, index): &(Key, usize)| alignment.rank(lane).calls.get(*index);
            (at, call)
        };
        // Of a camp the lane that tells most speaks for all.
        let from = split.camps.iter().map(|camp| {
            let lanes = camp.lanes.iter().filter_map(|lane| group.lanes.get(*lane));
            let rest = lanes.map(|lane| {
                let (at, call) = calls(lane);
                let rest = lane.calls.get(at..).unwrap_or_default();
                let whole = rest.windows(2).take(HISTORY).take_while(|w| adjacent(w[0].0, w[1].0)).count() + 1;
                rest.iter().take(whole).filter_map(call).collect::<Vec<_>>()
            });
            rest.max_by_key(Vec::len).unwrap_or_default()
        });
        let before =
            split.camps.iter().flat_map(|camp| &camp.lanes).filter_map(|lane| group.lanes.get(*lane)).map(|lane| {
                let (at, call) = calls(lane);
                let past = lane.calls.get(at.saturating_sub(HISTORY)..at).unwrap_or_default();
                let whole = past.windows(2).rev().take_while(|w| adjacent(w[0].0, w[1].0)).count() + 1;
                past.iter().skip(past.len().saturating_sub(whole)).filter_map(call).collect::<Vec<_>>()
            });
        View { split, from: from.collect(), history: before.max_by_key(Vec::len).unwrap_or_default() }
    }

    fn calls(&self, camp: usize) -> &[&'a Call] {
        self.from.get(camp).map_or(&[], Vec::as_slice)
    }

    fn story(&self, wrong: usize, right: usize) -> Story {
        let (wrong, right) = (self.calls(wrong), self.calls(right));
        let (Some(own), Some(others)) = (wrong.first(), right.first()) else { return Story::Open };
        if let ([a, b, ..], [c, d, ..]) = (wrong, right)
            && same(a, d)
            && same(b, c)
        {
            return Story::Swapped;
        }
        let after = (wrong.get(1..).unwrap_or_default(), right.get(1..).unwrap_or_default());
        if wrong.len() == right.len() && fits(after.0, after.1) {
            // among equal calls a shift would fit as well, but leave one rank with a call more
            return Story::Single;
        }
        for by in 1..=FURTHEST {
            if fits(wrong, right.get(by..).unwrap_or_default()) {
                return Story::Skipped(by);
            }
            if fits(wrong.get(by..).unwrap_or_default(), right) {
                return Story::Extra(by);
            }
        }
        if fits(after.0, after.1) {
            return Story::Single;
        }
        if !after.0.is_empty() && !after.1.is_empty() {
            return Story::Open;
        }
        // A new label for the same kind of call: another place in the program.
        let elsewhere = !own.label.is_empty() && !others.label.is_empty() && own.label != others.label;
        let expected = |ahead| self.expected(ahead);
        match (expected(0), expected(1)) {
            (Some(now), Some(next)) if now.admits(others) && next.admits(own) && !now.admits(own) => Story::Ahead,
            _ if self.history.last().is_some_and(|last| same(last, own)) => Story::Behind,
            _ if elsewhere => Story::Elsewhere,
            (Some(now), Some(_)) if now.admits(others) => Story::Alien,
            _ => Story::Open,
        }
    }

    /// Without a majority: of two camps, the one that goes on as before is in the right; else the one whose calls the
    /// other's run ahead of.
    fn break_tie(&self) -> (Option<usize>, Vec<String>) {
        let [Some(a), Some(b)] = [0, 1].map(|camp| self.calls(camp).first()) else { return (None, Vec::new()) };
        if self.split.camps.len() != 2 {
            return (None, Vec::new());
        }
        let steady = self.history.len() >= 3
            && self.history.iter().rev().take(3).all(|call| self.history.last().is_some_and(|last| same(last, call)));
        // An end of a run of equal calls cannot be foreseen: where the labels say that the program went on, both may be right.
        let phases = steady && !a.label.is_empty() && !b.label.is_empty() && a.label != b.label;
        if let Some(expected) = self.expected(0)
            && !phases
        {
            match (expected.admits(a), expected.admits(b)) {
                (true, false) => return (Some(0), vec![expected.says(a)]),
                (false, true) => return (Some(1), vec![expected.says(b)]),
                _ => {}
            }
        }
        let repeats = |call: &Call| self.history.last().is_some_and(|last| same(last, call));
        match (self.story(0, 1), self.story(1, 0)) {
            (Story::Skipped(_), Story::Skipped(_)) => (None, Vec::new()),
            // One of two skipped a call, or the other made one more. The latter shows as a repeated call.
            (Story::Skipped(_), Story::Extra(_)) if !repeats(b) => (Some(1), Vec::new()),
            (Story::Skipped(_), Story::Extra(_)) => (Some(0), Vec::new()),
            (Story::Extra(_), Story::Skipped(_)) if !repeats(a) => (Some(0), Vec::new()),
            (Story::Extra(_), Story::Skipped(_)) => (Some(1), Vec::new()),
            _ => (None, Vec::new()),
        }
    }

    /// What the history lets expect at the place, or further on.
    fn expected(&self, ahead: usize) -> Option<Expected> {
        let last = *self.history.last()?;
        let alike = self.history.iter().rev().take(4);
        let mut counts: Vec<u64> = alike
            .take_while(|c| c.operation == last.operation && c.dtype == last.dtype)
            .filter_map(|c| c.count)
            .collect();
        counts.reverse();
        if let Some(count) = progression(&counts, ahead) {
            return Some(Expected(Call { count: Some(count), ..last.clone() }));
        }
        repetition(&self.history, ahead, same).map(|call| Expected(call.clone()))
    }

    fn classes(&self, story: Story) -> Vec<Class> {
        let argument = match self.split.field {
            Field::Count => Some(Class::ASize),
            Field::DType => Some(Class::ADtype),
            Field::Operation | Field::Root | Field::Op => None,
        };
        let more = self.split.also.contains(&Field::DType).then_some(Class::ADtype);
        let mut classes = match (argument, story) {
            (Some(a), Story::Skipped(_) | Story::Extra(_) | Story::Ahead | Story::Behind | Story::Elsewhere) => {
                vec![Class::BCount, a]
            }
            (Some(a), Story::Swapped) => vec![Class::BOrder, a],
            (Some(a), Story::Single | Story::Alien) => vec![a],
            (Some(a), Story::Open) => vec![a, Class::BCount],
            (None, Story::Skipped(_) | Story::Extra(_) | Story::Ahead | Story::Behind | Story::Elsewhere) => {
                vec![Class::BCount, Class::BOrder]
            }
            (None, Story::Swapped | Story::Single) => vec![Class::BOrder],
            (None, Story::Alien | Story::Open) => vec![Class::BOrder, Class::BCount],
        };
        classes.extend(more.filter(|class| !classes.contains(class)));
        classes
    }

    fn majority(&self) -> String {
        let voters: usize = self.split.camps.iter().map(|camp| camp.lanes.len()).sum();
        let first = self.split.camps.first().map_or(0, |camp| camp.lanes.len());
        format!("{first} of {voters} ranks agree")
    }

    fn tie(&self) -> String {
        let sizes: Vec<String> = self.split.camps.iter().map(|camp| camp.lanes.len().to_string()).collect();
        format!(
            "{} ranks against each other: no majority, and no call before or after tells who is wrong",
            sizes.join(" and ")
        )
    }

    fn tell(&self, story: Story) -> Option<String> {
        Some(match story {
            Story::Skipped(by) => {
                format!("its calls match the others' {by} later from here on: {}", calls(by, "skipped"))
            }
            Story::Extra(by) => {
                format!("the others' calls match its own {by} later from here on: {} too many", calls(by, "made"))
            }
            Story::Swapped => "it makes this call and the next in the other order".to_owned(),
            Story::Single => "the calls that follow agree again: one argument is wrong".to_owned(),
            Story::Ahead => {
                "it passes what was to come one call later, going by the calls before: one call skipped".to_owned()
            }
            Story::Behind => {
                "it passes once more what all passed in the call before: one call too many, or an old size".to_owned()
            }
            Story::Alien => {
                "no call before it, nor the next to come, has this argument: not another call, a wrong argument"
                    .to_owned()
            }
            Story::Elsewhere => {
                "its call is from another place in the program: it is not where the others are".to_owned()
            }
            Story::Open => return None,
        })
    }
}

/// A call as it was to be.
struct Expected(Call);

impl Expected {
    fn admits(&self, call: &Call) -> bool {
        same(&self.0, call)
    }

    fn says(&self, call: &Call) -> String {
        match call.count {
            Some(count) => format!("{} of {count} elements goes on as the calls before", call.operation),
            None => format!("{} goes on as the calls before", call.operation),
        }
    }
}

fn calls(by: usize, what: &str) -> String {
    if by == 1 { format!("one call {what}") } else { format!("{by} calls {what}") }
}

fn same(a: &Call, b: &Call) -> bool {
    a.differs(b).is_none()
}

/// Whether two runs of calls are alike as far as both go, for at least one call.
fn fits(a: &[&Call], b: &[&Call]) -> bool {
    !a.is_empty() && !b.is_empty() && a.iter().zip(b).all(|(a, b)| same(a, b))
}

fn adjacent(a: Key, b: Key) -> bool {
    b.0 == a.0 || b.0 == a.0.wrapping_add(1)
}
