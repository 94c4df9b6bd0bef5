//! Which variants a case can have, so that no name promises a test that does not exist.

use crate::case::{Case, DType, Op, Primitive, Variant};

/// Why a case with these variants would not be the case that its name says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// A variant that changes nothing.
    #[error("{variant} does not apply to {what}: {why}")]
    Idle {
        /// The variant.
        variant: Variant,
        /// Primitive, op and dtype.
        what: String,
        /// The reason.
        why: &'static str,
    },
    /// Two that cannot be had together.
    #[error("{0} and {1} cannot be had in one case")]
    Both(Variant, Variant),
    /// One that means something only with another.
    #[error("{0} means something only together with {1}")]
    Alone(Variant, Variant),
}

/// Variants as names hold them: sorted, each once, without `root0`, which is the plain case.
pub fn canonical_variants(variants: &[Variant]) -> Result<Vec<Variant>, Misfit> {
    let mut sorted: Vec<Variant> = variants.iter().copied().filter(|v| *v != Variant::Root(0)).collect();
    sorted.sort_unstable();
    sorted.dedup();
    for (i, &variant) in sorted.iter().enumerate() {
        if let Some(other) = sorted[i + 1..].iter().find(|other| variant.excludes(**other)) {
            return Err(Misfit::Both(variant, *other));
        }
        if let Some(needed) = variant.needs()
            && !sorted.contains(&needed)
        {
            return Err(Misfit::Alone(variant, needed));
        }
    }
    Ok(sorted)
}

/// Whether all these variants change something about such a case.
pub fn apply(variants: &[Variant], primitive: Primitive, op: Option<Op>, dtype: DType) -> Result<(), Misfit> {
    variants.iter().try_for_each(|&variant| match variant.misfit(primitive, op, dtype) {
        None => Ok(()),
        Some(why) => {
            let what = format!("{primitive}::{}::{dtype}", op.map_or("none", Op::name));
            Err(Misfit::Idle { variant, what, why })
        }
    })
}

/// The case under the one name that it has; an error where a variant does not apply.
pub fn canonical(case: Case) -> Result<Case, Misfit> {
    // also root0 must be said of something that has a root
    apply(&case.variants, case.primitive, case.op, case.dtype)?;
    let variants = canonical_variants(&case.variants)?;
    Ok(Case { variants, ..case })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_apply_where_they_change_something() {
        for primitive in Primitive::ALL {
            let op = primitive.unit().reduces().then_some(Op::Sum);
            let applies = |variant| apply(&[variant], primitive, op, DType::Float).is_ok();
            let rooted = ["broadcast", "reduce", "scatter", "gather"].contains(&primitive.name());
            let whole = ["all_reduce", "broadcast", "reduce", "sendrecv"].contains(&primitive.name());
            assert_eq!(applies(Variant::Root(1)), rooted, "{primitive}");
            assert_eq!(applies(Variant::Odd), !whole, "{primitive}");
            assert_eq!(applies(Variant::Special), op.is_some(), "{primitive}");
            assert!(!applies(Variant::OddScalars) && applies(Variant::Graph));
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
        assert!(name("gather::none::float::8B@uneven").unwrap().is_err());
        assert!(name("gather::none::float::8B@pipeline+uneven").unwrap().is_ok());
    }
}
