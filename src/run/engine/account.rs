//! What a failure can be put down to, beyond what it says itself.

use super::Session;
use crate::fleet::inquest;
use crate::fleet::protocol::Request;
use crate::run::known;
use crate::run::result::{CaseResult, FailKind, Outcome};

impl Session {
    /// Where calls return errors, what ranks say of them and how far each got may tell more.
    pub(super) fn examine(&mut self, request: &Request, result: &mut CaseResult) {
        if result.outcome == Outcome::Fail
            && let Some(diagnosis) = inquest::failed(self.witnesses(), request.epoch)
        {
            result.message += &inquest::explained(&diagnosis);
            result.verdict = Some(diagnosis.verdict);
        }
    }

    /// Where data are wrong, ranks may have made different calls that happened to end; or the library is known for it.
    pub(super) fn account_for(&mut self, request: &Request, result: &mut CaseResult) {
        if let Some(diagnosis) = inquest::compare(self.witnesses(), request.epoch) {
            let verdict = diagnosis.verdict;
            result.message += &format!("\ncalls differ: {}: {}", verdict.class, verdict.summary);
            result.verdict = Some(verdict);
        } else if result.kind == Some(FailKind::Data)
            && let Some(known) = known::data(&request.case, request.ranks, &self.environment.nccl_version)
        {
            result.message += &format!("\n{known}");
        }
    }
}
