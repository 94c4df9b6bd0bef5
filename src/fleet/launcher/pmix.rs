//! PMIx alone, as PRRTE's prun without Open MPI's personality: it says which rank, and not of how many.

use super::claim::{Claim, Launcher, Said};
use super::error::Confusion;
use super::{Options, Variables};

/// PMIX_RANK and PMIX_NAMESPACE; the number of ranks is that of `--ranks`.
pub struct Pmix;

impl Launcher for Pmix {
    fn name(&self) -> &'static str {
        "pmix"
    }

    fn read(&self, variables: &Variables, options: &Options) -> Result<Option<Claim>, Confusion> {
        let launcher = self.name();
        let Some(there) = variables.number("PMIX_RANK")? else { return Ok(None) };
        let Some(ranks) = options.ranks else {
            return Err(Confusion::Incomplete { launcher, there, lacks: "the number of ranks (--ranks)" });
        };
        Ok(Some(Claim {
            job: variables.text("PMIX_NAMESPACE").unwrap_or_default().to_owned(),
            ..Claim::ranks(launcher, there, Said { name: "--ranks", value: ranks })
        }))
    }
}
