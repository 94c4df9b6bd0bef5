//! What a failure can be put down to, beyond what it says itself.

use super::Session;
use crate::fleet::inquest;
use crate::fleet::protocol::Request;
use crate::run::known;
use crate::run::result::{CaseResult, Outcome};

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
        } else {
            self.recall(request, result);
        }
    }

    /// What the library is known for, where a failure can be laid to no rank.
    pub(super) fn recall(&self, request: &Request, result: &mut CaseResult) {
        let nobody = result.verdict.as_ref().is_none_or(|verdict| verdict.culprit_ranks.is_empty());
        if nobody
            && let Some(kind) = result.kind
            && let Some(known) = known::bug(&request.case, &self.environment, kind)
        {
            result.message += &format!("\n{known}");
        }
    }
}
