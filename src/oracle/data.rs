//! Which data a case asks for, beside its op and dtype.

use crate::case::{DType, Op, Variant};

/// The kind of data that a plan makes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Data {
    /// Results are masked random words.
    #[default]
    Plain,
    /// Values that are no ordinary numbers: see [`super::special`].
    Special,
    /// The scalars of mulsum are three times a power of two, and so are the results to those of a plain sum.
    OddScalars,
}

impl Data {
    /// What a case with these variants asks for.
    pub fn of(variants: &[Variant]) -> Data {
        let asked = |variant: &Variant| match variant {
            Variant::Special => Some(Data::Special),
            Variant::OddScalars => Some(Data::OddScalars),
            _ => None,
        };
        variants.iter().find_map(asked).unwrap_or_default()
    }

    /// The same where such a reduction has such data, else plain: the rule of [`Variant::misfit`].
    pub(super) fn fitting(self, op: Option<Op>, dtype: DType) -> Data {
        let possible = match self {
            Data::Plain => true,
            Data::Special => op.is_some() && dtype.float().is_some(),
            Data::OddScalars => op == Some(Op::Mulsum) && dtype.float().is_some_and(|format| format.precision() > 4),
        };
        if possible { self } else { Data::Plain }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Primitive;

    #[test]
    fn plans_have_the_data_of_every_variant_that_fits_and_of_no_other() {
        for op in Op::ALL {
            for dtype in DType::ALL {
                for variant in [Variant::Special, Variant::OddScalars] {
                    let data = Data::of(&[Variant::Graph, variant]);
                    assert_ne!(data, Data::Plain);
                    let fits = variant.misfit(Primitive::AllReduce, Some(op), dtype).is_none();
                    assert_eq!(data.fitting(Some(op), dtype) == data, fits, "{variant} {op} {dtype}");
                    assert_eq!(data.fitting(None, dtype), Data::Plain);
                }
            }
        }
        assert_eq!(Data::of(&[Variant::Graph]), Data::Plain);
    }
}
