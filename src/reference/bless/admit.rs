//! Which launches may be blessed together.

use super::{Launch, Rule};
use crate::backend::Environment;
use crate::reference::key::NoKey;
use crate::reference::{EnvironmentKey, Observed};
use crate::run::result::{CaseResult, FailKind};

/// Why no golden file is made. Exit code 2.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// One launch says nothing of the next.
    #[error("too few launches to tell how far launches differ: {given}, expected at least {needed}")]
    TooFew {
        /// Launches given.
        given: usize,
        /// Launches needed.
        needed: usize,
    },
    /// A copy adds no knowledge, and makes launches look alike.
    #[error("{first} and {second} are the same launch: both started at {started}")]
    Twice {
        /// One file.
        first: String,
        /// The other.
        second: String,
        /// When.
        started: String,
    },
    /// Ranges hold for one environment.
    #[error("{first} and {second} are from different environments: {difference}")]
    Unlike {
        /// One file.
        first: String,
        /// The other.
        second: String,
        /// What differs, and how.
        difference: String,
    },
    /// What is wrong or broken is no standard.
    #[error("{file}: {case} failed ({kind}); only a machine that works can be blessed")]
    Failed {
        /// The file.
        file: String,
        /// The case's name.
        case: String,
        /// How.
        kind: &'static str,
    },
    /// A collective that does not do its work may well be fast.
    #[error("{file}: the result of {case} was not checked; expected a run without --no-check")]
    Unchecked {
        /// The file.
        file: String,
        /// The case's name.
        case: String,
    },
    /// Some cases are missing, and nobody knows why.
    #[error("{file}: the run did not finish ({why}); expected a whole one")]
    Unfinished {
        /// The file.
        file: String,
        /// How it ended.
        why: String,
    },
    /// Medians are closer to each other than launches are.
    #[error(
        "{file}: it was run with {option}, so that its figures are not those of one launch; run it several times instead"
    )]
    NotOneLaunch {
        /// The file.
        file: String,
        /// `--repeat` or `--soak`.
        option: &'static str,
    },
    /// The environment is none that ranges can hold for.
    #[error("{file}: {reason}")]
    NoKey {
        /// The file.
        file: String,
        /// Why.
        reason: NoKey,
    },
    /// Nothing to make ranges of.
    #[error(
        "no case has a time in {needed} launches; expected cases without variants, or with a root only, on at least two ranks"
    )]
    Nothing {
        /// Launches needed.
        needed: usize,
    },
}

/// The environment that the launches have in common, if there is nothing against any of them.
pub(super) fn admit(launches: &[Launch], rule: Rule) -> Result<EnvironmentKey, Refusal> {
    let too_few = Refusal::TooFew { given: launches.len(), needed: rule.min_launches };
    let first = launches.first().filter(|_| launches.len() >= rule.min_launches).ok_or(too_few)?;
    for launch in launches {
        whole(launch)?;
        launch.results.cases.iter().try_for_each(|case| sound(launch, case))?;
    }
    let key = key(first)?;
    for (i, launch) in launches.iter().enumerate().skip(1) {
        if let Some(same) = launches.iter().take(i).find(|other| is_copy(other, launch)) {
            return Err(Refusal::Twice {
                first: same.name.clone(),
                second: launch.name.clone(),
                started: launch.results.started.clone(),
            });
        }
        if let Some(difference) = difference(first, &key, launch)? {
            let (first, second) = (first.name.clone(), launch.name.clone());
            return Err(Refusal::Unlike { first, second, difference });
        }
    }
    Ok(key)
}

fn key(launch: &Launch) -> Result<EnvironmentKey, Refusal> {
    EnvironmentKey::of(&launch.results.environment, Observed::default())
        .map_err(|reason| Refusal::NoKey { file: launch.name.clone(), reason })
}

fn whole(launch: &Launch) -> Result<(), Refusal> {
    let (file, results) = (launch.name.clone(), &launch.results);
    if let Some(why) = results.aborted.clone() {
        return Err(Refusal::Unfinished { file, why });
    }
    if results.finished.is_none() {
        return Err(Refusal::Unfinished { file, why: "it has no end".to_owned() });
    }
    let given = |option: &str| {
        let words = &results.command;
        let next = words.iter().position(|w| w == option).and_then(|i| words.get(i + 1)).map(String::as_str);
        next.or_else(|| words.iter().find_map(|w| w.strip_prefix(option)?.strip_prefix('=')))
    };
    let option = match (given("--repeat"), given("--soak")) {
        (Some(times), _) if times != "1" => "--repeat",
        (_, Some(_)) => "--soak",
        _ => return Ok(()),
    };
    Err(Refusal::NotOneLaunch { file, option })
}

/// A case that was merely slower or faster than a former reference may be blessed anew.
fn sound(launch: &Launch, case: &CaseResult) -> Result<(), Refusal> {
    let (file, name) = (launch.name.clone(), case.name.clone());
    if let Some(kind) = case.kind.filter(|kind| !matches!(kind, FailKind::Slow | FailKind::TooFast)) {
        return Err(Refusal::Failed { file, case: name, kind: kind.name() });
    }
    if case.placements.iter().any(|p| p.wrong.is_none()) {
        return Err(Refusal::Unchecked { file, case: name });
    }
    Ok(())
}

/// Started at the same nanosecond of the same host, or with the same figures throughout.
fn is_copy(a: &Launch, b: &Launch) -> bool {
    let figures = |launch: &Launch| -> Vec<u64> {
        let placements = launch.results.cases.iter().flat_map(|case| &case.placements);
        placements.map(|p| p.mean_us.to_bits()).collect()
    };
    let (x, y) = (&a.results, &b.results);
    x.started == y.started && (x.environment.host == y.environment.host || figures(a) == figures(b))
}

/// What differs between two environments as far as it can move a figure.
fn difference(first: &Launch, key_of_first: &EnvironmentKey, other: &Launch) -> Result<Option<String>, Refusal> {
    let (a, b) = (&first.results.environment, &other.results.environment);
    for (what, a, b) in [
        ("backend", &a.backend, &b.backend),
        ("device", &a.device, &b.device),
        ("link", &a.link, &b.link),
        ("NCCL", &a.nccl_version, &b.nccl_version),
        ("driver", &a.driver, &b.driver),
        ("ranks", &a.ranks.to_string(), &b.ranks.to_string()),
        ("nodes", &a.nodes.to_string(), &b.nodes.to_string()),
    ] {
        if a != b {
            return Ok(Some(format!("{what} {a:?} and {b:?}")));
        }
    }
    let (x, y): (Vec<_>, Vec<_>) = (steering(a).collect(), steering(b).collect());
    let only = |these: &[(&str, &str)], others: &[(&str, &str)]| {
        these.iter().find(|pair| !others.contains(pair)).map(|(name, value)| format!("{name}={value} in one only"))
    };
    if let Some(difference) = only(&x, &y).or_else(|| only(&y, &x)) {
        return Ok(Some(difference));
    }
    let other_key = key(other)?;
    Ok((*key_of_first != other_key).then(|| "their keys differ".to_owned()))
}

/// The variables that change what NCCL does, not what it tells.
pub(super) fn steering(environment: &Environment) -> impl Iterator<Item = (&str, &str)> {
    let told = |name: &str| name.starts_with("NCCL_DEBUG") || name == "NCCL_VERSION";
    let variables = environment.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    variables.filter(move |(name, _)| name.starts_with("NCCL_") && !told(name))
}
