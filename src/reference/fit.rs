//! Which entries fit a case, and which fits best.

use super::facts::Facts;
use super::golden::Entry;
use super::key::EnvironmentKey;
use super::{Choice, Named, Provenance, References, pattern};
use crate::case::Case;

/// An entry that nothing known speaks against.
#[derive(Debug, Clone)]
pub(super) struct Candidate<'a> {
    pub file: &'a str,
    pub entry: &'a Entry,
    /// What its key asks for and nobody knows; empty where it certainly fits.
    pub unknown: Vec<String>,
    order: (usize, Provenance, u32),
}

impl References {
    /// The entries for a case, best first: the user's files before the binary's and later ones before earlier ones, then
    /// measured before published before gate, then the one whose key says most.
    pub(super) fn candidates(&self, facts: &Facts<'_>, case: &Case) -> Vec<Candidate<'_>> {
        let mut found: Vec<Candidate<'_>> = self.files.iter().flat_map(|f| fitting(f, facts, case)).collect();
        found.sort_by_key(|c| std::cmp::Reverse(c.order));
        found
    }
}

fn fitting<'a>(named: &'a Named, facts: &Facts<'_>, case: &Case) -> Vec<Candidate<'a>> {
    let key = &named.file.environment;
    let Some(unknown) = environment_fits(key, facts) else {
        return Vec::new();
    };
    let candidate = |entry: &'a Entry| {
        let mut unknown = unknown.clone();
        unknown.extend(entry_fits(entry, facts, case)?);
        let order = (named.priority, entry.provenance, specificity(key, entry));
        Some(Candidate { file: &named.name, entry, unknown, order })
    };
    named.file.entries.iter().filter_map(candidate).collect()
}

/// `None` where the key does not fit, else the facts it asks for in vain.
fn environment_fits(key: &EnvironmentKey, facts: &Facts<'_>) -> Option<Vec<String>> {
    let environment = facts.environment;
    let certain = key.backend == environment.backend
        && key.ranks() == u64::from(facts.ranks)
        && key.nodes == facts.nodes
        && key.gpu.iter().any(|p| pattern::fits(p, &environment.device))
        && key.nvls.admits(&facts.nvls);
    if !certain {
        return None;
    }
    let mut unknown = Vec::new();
    if !key.link.is_any() {
        if environment.link.is_empty() {
            unknown.push(format!("the link between GPUs ({})", key.link));
        } else if !key.link.admits(&environment.link) {
            return None;
        }
    }
    match (key.nics, facts.nics) {
        (Some(wanted), Some(known)) if wanted != known => return None,
        (Some(wanted), None) => unknown.push(format!("the network cards ({wanted})")),
        _ => {}
    }
    match key.nccl.admits(&environment.nccl_version) {
        Some(true) => {}
        Some(false) => return None,
        None => unknown.push(format!("the NCCL version ({})", key.nccl)),
    }
    Some(unknown)
}

fn entry_fits(entry: &Entry, facts: &Facts<'_>, case: &Case) -> Option<Option<String>> {
    let op = case.op.is_none_or(|op| entry.op.admits(&op));
    if entry.primitive != case.primitive || !op || !entry.dtype.admits(&case.dtype) {
        return None;
    }
    match (&entry.algorithm, facts.algorithm) {
        (Choice::Of(_), None) => Some(Some(format!("the algorithm ({})", entry.algorithm))),
        (wanted, Some(known)) if !wanted.admits(&known) => None,
        _ => Some(None),
    }
}

/// How much a key and an entry pin down.
fn specificity(key: &EnvironmentKey, entry: &Entry) -> u32 {
    let said = [
        !key.link.is_any(),
        key.nics.is_some(),
        !key.nvls.is_any(),
        !entry.op.is_any(),
        !entry.dtype.is_any(),
        !entry.algorithm.is_any(),
    ];
    let gpu = key.gpu.iter().map(|p| pattern::specificity(p)).min().unwrap_or(0);
    said.into_iter().map(u32::from).sum::<u32>() + key.nccl.specificity() + gpu
}
