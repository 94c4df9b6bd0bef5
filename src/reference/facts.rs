//! What is known of the place where a case ran, as far as keys ask for it.

use super::Algorithm;
use super::algorithm::Allowed;
use super::key::Nics;
use crate::backend::Environment;
use crate::case::Primitive;
use crate::run::result::Path;

/// What can be found out beyond [`Environment`], as from NCCL's log or the PCI tree. Leave out what is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Observed {
    /// The network cards of one node.
    pub nics: Option<Nics>,
    /// Whether the library found NVLS multicast.
    pub nvls: Option<bool>,
}

/// The facts that keys are compared with.
#[derive(Debug, Clone)]
pub(super) struct Facts<'a> {
    pub environment: &'a Environment,
    pub ranks: u32,
    pub nodes: u32,
    pub nics: Option<Nics>,
    /// Whether NVLS may be used.
    pub nvls: bool,
    /// The algorithm, where it is known.
    pub algorithm: Option<Algorithm>,
}

impl<'a> Facts<'a> {
    pub fn of(
        environment: &'a Environment,
        observed: Observed,
        primitive: Primitive,
        ranks: u32,
        path: Option<&Path>,
    ) -> Self {
        let allowed = allowed(environment, primitive);
        let algorithm = match path {
            // What was seen to run counts, even where it is no classic algorithm.
            Some(path) => Algorithm::read(&path.algo),
            None => allowed.single(),
        };
        let nvls = algorithm.is_some_and(Algorithm::uses_nvls)
            || observed.nvls.unwrap_or_else(|| nvls_not_disabled(environment) && allowed.nvls());
        Facts { environment, ranks, nodes: environment.nodes.max(1), nics: observed.nics, nvls, algorithm }
    }
}

fn allowed(environment: &Environment, primitive: Primitive) -> Allowed {
    environment.variables.get("NCCL_ALGO").map_or(Allowed::All, |value| Allowed::read(value, primitive))
}

/// NCCL uses NVLS wherever it can unless `NCCL_NVLS_ENABLE` is 0, so NVLS counts as on unless it is known to be off: a
/// machine that silently lost it must be seen to be slow, not measured by a lower standard.
pub(super) fn nvls_not_disabled(environment: &Environment) -> bool {
    environment.variables.get("NCCL_NVLS_ENABLE").is_none_or(|value| value.trim() != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &[(&str, &str)]) -> Environment {
        Environment {
            variables: variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            ..Environment::default()
        }
    }

    fn path(algo: &str) -> Path {
        Path { algo: algo.to_owned(), proto: "SIMPLE".to_owned(), channels: 24 }
    }

    #[test]
    fn nvls_counts_as_on_unless_it_is_known_to_be_off() {
        let nvls = |variables: &[(&str, &str)], observed: Option<bool>, ran: Option<&Path>| {
            let observed = Observed { nvls: observed, ..Observed::default() };
            Facts::of(&environment(variables), observed, Primitive::AllReduce, 8, ran).nvls
        };
        assert!(nvls(&[], None, None));
        assert!(nvls(&[("NCCL_NVLS_ENABLE", "2")], None, None));
        assert!(!nvls(&[("NCCL_NVLS_ENABLE", "0")], None, None));
        assert!(!nvls(&[("NCCL_ALGO", "Ring")], None, None));
        assert!(!nvls(&[], Some(false), None));
        // A small message runs on a ring although NVLS is there: that says nothing.
        assert!(nvls(&[], None, Some(&path("RING"))));
        assert!(nvls(&[], Some(false), Some(&path("NVLS"))), "what ran was there");
    }

    #[test]
    fn the_algorithm_that_ran_goes_before_the_one_that_was_asked_for() {
        let forced = environment(&[("NCCL_ALGO", "Ring")]);
        let of = |path: Option<&Path>| Facts::of(&forced, Observed::default(), Primitive::AllReduce, 8, path).algorithm;
        assert_eq!(of(None), Some(Algorithm::Ring));
        assert_eq!(of(Some(&path("TREE"))), Some(Algorithm::Tree));
        assert_eq!(of(Some(&path("Symmetric"))), None);
    }
}
