//! Which variants a primitive can have, so that no name promises a test that does not exist.

use crate::case::{Case, DType, Forced, Primitive, Variant, Workload};

/// Why a case with these variants would not be the case that its name says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// A root for a primitive without one.
    #[error("{0} has no root, so {1} does not apply")]
    NoRoot(Primitive, Variant),
    /// Unrounded blocks for a primitive that moves whole buffers.
    #[error("{0} does not round its counts, so {1} does not apply")]
    NoBlocks(Primitive, Variant),
    /// More than one root.
    #[error("{0} and {1} are two roots, expected one")]
    TwoRoots(Variant, Variant),
    /// A path that NCCL does not have there.
    #[error("{1} does not apply to {0}: {2}")]
    NoPath(Primitive, Variant, &'static str),
    /// Paths that no launch can take together.
    #[error("{0} and {1} cannot be had in one case")]
    TwoPaths(Forced, Forced),
}

/// Variants as names hold them: sorted, each once, without `root0`, which is the plain case.
pub fn canonical_variants(variants: &[Variant]) -> Result<Vec<Variant>, Misfit> {
    let mut sorted: Vec<Variant> = variants.iter().copied().filter(|v| *v != Variant::Root(0)).collect();
    sorted.sort_unstable();
    sorted.dedup();
    let paths: Vec<Forced> =
        sorted.iter().filter_map(|v| if let Variant::Path(p) = v { Some(*p) } else { None }).collect();
    let both =
        paths.iter().enumerate().find_map(|(i, a)| Some((a, paths.iter().skip(i + 1).find(|b| a.excludes(**b))?)));
    if let Some((one, two)) = both {
        return Err(Misfit::TwoPaths(*one, *two));
    }
    let mut roots = sorted.iter().filter(|v| matches!(v, Variant::Root(_)));
    match (roots.next(), roots.next()) {
        (Some(one), Some(two)) => Err(Misfit::TwoRoots(*one, *two)),
        _ => Ok(sorted),
    }
}

/// Whether a variant changes anything about a primitive.
pub fn applies(variant: Variant, primitive: Primitive) -> Result<(), Misfit> {
    match variant {
        Variant::Root(_) if !primitive.unit().rooted() => Err(Misfit::NoRoot(primitive, variant)),
        Variant::Odd if !rounds_counts(primitive) => Err(Misfit::NoBlocks(primitive, variant)),
        Variant::Root(_) | Variant::Odd => Ok(()),
        Variant::Path(forced) => {
            forced.misfit(primitive).map_or(Ok(()), |why| Err(Misfit::NoPath(primitive, variant, why)))
        }
    }
}

/// The case under the one name that it has; an error where a variant does not apply.
pub fn canonical(case: Case) -> Result<Case, Misfit> {
    let variants = canonical_variants(&case.variants)?;
    variants.iter().try_for_each(|variant| applies(*variant, case.primitive))?;
    // also root0 must be said of something that has a root
    case.variants.iter().try_for_each(|variant| applies(*variant, case.primitive))?;
    Ok(Case { variants, ..case })
}

/// Whether the primitive's counts differ with and without rounding, asked of the primitive itself.
fn rounds_counts(primitive: Primitive) -> bool {
    // 333 bytes for each of three ranks: no multiple of 16
    let rounded = Workload { bytes: 999, dtype: DType::Int8, ranks: 3, root: 0, aligned: true };
    let unit = primitive.unit();
    unit.shape(&rounded) != unit.shape(&Workload { aligned: false, ..rounded })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_apply_where_they_change_something() {
        for primitive in Primitive::ALL {
            let rooted = ["broadcast", "reduce", "scatter", "gather"].contains(&primitive.name());
            let whole = ["all_reduce", "broadcast", "reduce", "sendrecv"].contains(&primitive.name());
            assert_eq!(applies(Variant::Root(1), primitive).is_ok(), rooted, "{primitive}");
            assert_eq!(applies(Variant::Odd, primitive).is_ok(), !whole, "{primitive}");
        }
    }

    #[test]
    fn a_case_has_one_name() {
        let name = |text: &str| text.parse::<Case>().map(|case| canonical(case).map(|case| case.name()));
        let plain = "gather::none::float::8B";
        assert_eq!(name("gather::none::f32::8@root0"), Ok(Ok(plain.to_owned())));
        assert_eq!(name("gather::none::float::8B@odd+root1+odd"), Ok(Ok(format!("{plain}@root1+odd"))));
        assert!(name("gather::none::float::8B@root1+root2").unwrap().is_err());
        assert!(name("all_gather::none::float::8B@root0").unwrap().is_err());
    }
}
