//! The progress bar.

use std::fmt::Write;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// The case has a line of its own: names are long, and 80 columns are soon full.
const TEMPLATE: &str = "{elapsed} [{bar:24}] {pos}/{len}, {rate}, {eta} left{prefix}\n    {wide_msg}";

/// A bar over `cases` cases. It ticks by itself, so that a case that hangs is seen to take time.
pub fn new(cases: u64, target: ProgressDrawTarget) -> ProgressBar {
    let style = ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar());
    let rate = |state: &ProgressState, out: &mut dyn Write| {
        // The bar only draws; what it cannot draw is missed by no one.
        let _ = write!(out, "{:.1} cases/s", state.per_sec());
    };
    let bar = ProgressBar::with_draw_target(Some(cases), target)
        .with_style(style.with_key("rate", rate).progress_chars("=> "));
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_is_one_that_indicatif_knows() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
    }
}
