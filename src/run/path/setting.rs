//! The variables that a case's path asks for.

use std::collections::BTreeMap;

use crate::backend::Making;
use crate::case::Case;

/// How variables are looked up; in tests not in the process.
pub type Lookup<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// The process's variables. One that is no UTF-8 is none that NCCL knows.
pub fn of_process(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Variables and their values; none for a case whose path is NCCL's choice.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Settings(BTreeMap<&'static str, String>);

impl Settings {
    /// What a case asks for.
    pub fn of(case: &Case) -> Settings {
        Settings(case.forced().into_iter().flat_map(|forced| forced.variables(case.primitive)).collect())
    }

    /// Whether they are set. NCCL ignores letter case in all but names of kernels, and there no two differ only in it.
    pub fn hold(&self, lookup: &Lookup<'_>) -> bool {
        self.0.iter().all(|(name, value)| lookup(name).is_some_and(|set| set.eq_ignore_ascii_case(value)))
    }

    /// The variables.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (*name, value.as_str()))
    }
}

/// See [`super::grouped`].
pub fn grouped(mut cases: Vec<Case>, lookup: &Lookup<'_>) -> Vec<Case> {
    let mut order: BTreeMap<Settings, usize> = BTreeMap::new();
    for case in &cases {
        let settings = Settings::of(case);
        let next = if settings.hold(lookup) { 0 } else { order.len() + 1 };
        order.entry(settings).or_insert(next);
    }
    let mut makings: Vec<Making> = Vec::new();
    for making in cases.iter().map(Making::of) {
        if !makings.contains(&making) {
            makings.push(making);
        }
    }
    cases.sort_by_key(|case| {
        let making = Making::of(case);
        (order.get(&Settings::of(case)).copied(), makings.iter().position(|one| *one == making))
    });
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(cases: &[&str], variables: &[(&str, &str)]) -> Vec<String> {
        let cases = cases.iter().map(|name| name.parse().unwrap()).collect();
        let lookup = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        grouped(cases, &lookup).iter().map(Case::name).collect()
    }

    const A: &str = "all_reduce::sum::float::8B";
    const B: &str = "all_reduce::sum::float::64B";

    #[test]
    fn cases_of_one_path_follow_each_other_and_plain_ones_come_first() {
        let at = |name: &str, path: &str| format!("{name}@{path}");
        let mixed = [at(A, "ring+ll"), at(A, "tree"), A.to_owned(), at(B, "ring+ll"), at(B, "tree"), B.to_owned()];
        let mixed: Vec<&str> = mixed.iter().map(String::as_str).collect();
        let order = [A.to_owned(), B.to_owned(), at(A, "ring+ll"), at(B, "ring+ll"), at(A, "tree"), at(B, "tree")];
        assert_eq!(names(&mixed, &[]), order);
        // what this process has anyway is no reason to leave it
        let here = names(&mixed, &[("NCCL_ALGO", "TREE")]);
        assert_eq!(here[..4], [at(A, "tree"), A.to_owned(), at(B, "tree"), B.to_owned()]);
    }

    #[test]
    fn plain_cases_keep_their_order() {
        assert_eq!(names(&[B, A], &[("NCCL_ALGO", "Ring")]), [B, A]);
    }

    #[test]
    fn cases_of_one_communicator_follow_each_other() {
        let split = |name: &str| format!("{name}@split");
        assert_eq!(names(&[A, &split(A), B, &split(B)], &[]), [A, B, &split(A), &split(B)]);
        assert_eq!(names(&[&split(A), A, &split(B)], &[]), [&split(A), &split(B), A]);
    }

    #[test]
    fn the_same_kernel_of_two_collectives_is_two_settings() {
        let of = |name: &str| Settings::of(&name.parse().unwrap());
        let gather = of("all_gather::none::float::8B@sym-ll");
        assert_eq!(gather.iter().collect::<Vec<_>>(), [("NCCL_SYM_KERNEL", "AllGather_LL")]);
        assert_ne!(gather, of("reduce_scatter::sum::float::8B@sym-ll"));
    }
}
