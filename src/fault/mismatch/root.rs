//! root: class B of hangs. A rank names another root.

use super::super::{Expectation, Family, Fault, Injector, STEP};
use super::{Other, either};
use crate::case::{Case, DType, Op, Primitive, Variant};
use crate::trace::Class;

pub struct Root;

impl Fault for Root {
    fn name(&self) -> &'static str {
        "root"
    }

    fn family(&self) -> Family {
        Family::Mismatch
    }

    fn deed(&self) -> &'static str {
        "names another root in launch 6"
    }

    fn misfit(&self, primitive: Primitive, _op: Option<Op>, _dtype: DType) -> Option<&'static str> {
        (!primitive.unit().rooted()).then_some("it has no root")
    }

    fn growing(&self) -> bool {
        true
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(Other {
            step: STEP,
            change: |case, rank| {
                let root = (case.root() + 1) % rank.request.ranks.max(1);
                let others = case.variants.iter().copied().filter(|v| !matches!(v, Variant::Root(_)));
                Case { variants: others.chain([Variant::Root(root)]).collect(), ..case.clone() }
            },
        })
    }

    fn expects(&self) -> Expectation {
        either(&[Class::BOrder])
    }
}
