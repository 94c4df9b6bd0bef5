//! nccl-tests' text table, for scripts that parse it: same columns, widths, units and footer.
//!
//! What nccl-tests cannot say is in lines that begin with `#`, which such scripts skip. A placement that a case does not
//! have, or that measured nothing, is `N/A`. `#wrong` counts elements, as there.

use std::io::{self, Write};

use super::text::one_line;
use super::{Pipe, describe};
use crate::backend::Environment;
use crate::case::Op;
use crate::run::event::{Consumer, Event};
use crate::run::result::{CaseResult, FailKind, Outcome, PlacementResult};

/// The consumer.
pub struct Table {
    out: Pipe,
    test: String,
    settings: String,
    busbw_sum: f64,
    busbw_count: u64,
    wrong: u64,
    /// A failure other than of bandwidth.
    failed: bool,
    off_bounds: bool,
    /// Whether any bandwidth was asserted; only then is there a verdict on it.
    asserted: bool,
}

impl Table {
    /// Writes to `out`; its being closed is no error.
    ///
    /// `test` is the binary's name in nccl-tests, as `all_reduce_perf`. `settings` is a line on sizes and iterations.
    pub fn new(out: Box<dyn Write + Send>, test: &str, settings: &str) -> Table {
        Table {
            out: Pipe::new(out),
            test: one_line(test, 200),
            settings: one_line(settings, 500),
            busbw_sum: 0.0,
            busbw_count: 0,
            wrong: 0,
            failed: false,
            off_bounds: false,
            asserted: false,
        }
    }

    fn say(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    fn header(&self, environment: &Environment) -> String {
        let version = env!("CARGO_PKG_VERSION");
        let mut text = format!(
            "# collcheck version {version} nccl-library={}\n# Collective test starting: {}\n",
            version_code(&environment.nccl_version),
            self.test
        );
        if !self.settings.is_empty() {
            text.push_str(&format!("# {}\n", self.settings));
        }
        text.push_str("#\n# Using devices\n");
        for (rank, device) in environment.devices.iter().enumerate() {
            text.push_str(&format!(
                "#  Rank {rank:>2} on {:>10} device {} {}\n",
                one_line(&environment.host, 100),
                one_line(device, 100),
                one_line(&environment.device, 100)
            ));
        }
        let figures = "     time   algbw   busbw  #wrong";
        let units = "     (us)  (GB/s)  (GB/s)        ";
        text.push_str(&format!("#\n#{:>74}{:>31}          \n", "out-of-place", "in-place"));
        for (names, rest) in
            [(["size", "count", "type", "redop", "root"], figures), (["(B)", "(elements)", "", "", ""], units)]
        {
            let [size, count, dtype, op, root] = names;
            text.push_str(&format!("#{size:>11}  {count:>12}  {dtype:>8}  {op:>6}  {root:>6}{rest}{rest} \n"));
        }
        text
    }

    fn row(&mut self, case: &CaseResult) -> String {
        for p in &case.placements {
            self.wrong += p.wrong.unwrap_or(0);
            if p.busbw_gbs.is_finite() {
                self.busbw_sum += p.busbw_gbs;
                self.busbw_count += 1;
            }
        }
        match case.kind {
            Some(FailKind::Slow | FailKind::TooFast) => self.off_bounds = true,
            Some(_) => self.failed = true,
            None => self.failed |= case.outcome == Outcome::Fail,
        }
        self.asserted |= case.reference.lower_gbs.is_some() && case.outcome != Outcome::Skip;
        let name = one_line(&case.name, 300);
        if case.outcome == Outcome::Skip {
            return format!("# skipped {name}: {}\n", one_line(&case.message, 300));
        }
        let mut text = format!(
            "{:>12}  {:>12}  {:>8}  {:>6}  {:>6}",
            case.bytes,
            case.count,
            case.dtype,
            case.op.map_or("none", Op::name),
            case.root
        );
        for in_place in [false, true] {
            text.push_str(&figures(case.placements.iter().find(|p| p.in_place == in_place)));
        }
        text.push('\n');
        if case.outcome == Outcome::Fail {
            let kind = case.kind.map_or("failed", |k| k.name());
            text.push_str(&format!("# FAILED {name} ({kind}): {}\n", describe::reason(case)));
        }
        text
    }

    fn footer(&self) -> String {
        let values = if self.wrong > 0 || self.failed { "FAILED" } else { "OK" };
        let average = if self.busbw_count == 0 { 0.0 } else { self.busbw_sum / self.busbw_count as f64 };
        let bandwidth = match (self.asserted, self.off_bounds) {
            (_, true) => "FAILED",
            (true, false) => "OK",
            (false, false) => "",
        };
        format!(
            "# Out of bounds values : {} {values}\n# Avg bus bandwidth    : {} {bandwidth}\n#\n\
             # Collective test concluded: {}\n#\n",
            self.wrong,
            six_digits(average),
            self.test
        )
    }
}

/// Time, algbw, busbw and #wrong of one placement, 33 characters.
fn figures(placement: Option<&PlacementResult>) -> String {
    let value = |value: fn(&PlacementResult) -> f64, width| {
        placement.map(value).filter(|v| v.is_finite()).map_or("N/A".to_owned(), |v| fit(v, width))
    };
    let wrong = placement.and_then(|p| p.wrong).map_or("N/A".to_owned(), |n| n.to_string());
    format!(
        "  {:>7}  {:>6}  {:>6}  {wrong:>6}",
        value(|p| p.mean_us, 7),
        value(|p| p.algbw_gbs, 6),
        value(|p| p.busbw_gbs, 6)
    )
}

/// A number with two decimals, or as many as fit into `width` characters.
fn fit(value: f64, width: usize) -> String {
    let candidates = [2, 1, 0].map(|decimals| format!("{value:.decimals$}"));
    let fitting = candidates.into_iter().find(|text| text.len() <= width);
    fitting.unwrap_or_else(|| format!("{value:.1e}"))
}

/// Six significant digits without trailing zeros: C's `%g`, for the range that bandwidths have.
fn six_digits(value: f64) -> String {
    if !value.is_finite() || value == 0.0 {
        return "0".to_owned();
    }
    let exponent = value.abs().log10().floor() as i32;
    if !(-5..6).contains(&exponent) {
        return format!("{value:.5e}");
    }
    let text = format!("{value:.*}", usize::try_from(5 - exponent).unwrap_or(0));
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// `2.28.9` as NCCL's number, 22809; 0 where there is none.
fn version_code(version: &str) -> u64 {
    let mut parts = version.split('.').map(|part| part.parse::<u64>().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0);
    let (major, minor, patch) = (next(), next(), next());
    // 2.8 and older had three digits less.
    if (major, minor) <= (2, 8) { major * 1000 + minor * 100 + patch } else { major * 10_000 + minor * 100 + patch }
}

impl Consumer for Table {
    fn take(&mut self, event: &Event) -> anyhow::Result<()> {
        let text = match event {
            Event::Started { environment, .. } => self.header(environment),
            Event::CaseStarted { .. } => return Ok(()),
            Event::CaseFinished { result } => self.row(result),
            Event::Aborted { reason } => {
                self.failed = true;
                format!("# ABORTED: {}\n", one_line(reason, 1000))
            }
            Event::Finished { .. } => self.footer(),
        };
        self.say(&text)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use crate::run::result::Assertion;

    fn shown(cases: &[CaseResult]) -> String {
        let out = sample::Shared::default();
        let mut table = Table::new(Box::new(out.clone()), "all_reduce_perf", "minBytes 8 maxBytes 1073741824");
        sample::feed(&mut table, &sample::events(cases));
        out.text()
    }

    fn measured(name: &str, figures: [(f64, f64, f64); 2]) -> CaseResult {
        let mut case = sample::case(name);
        for (p, (time, algbw, busbw)) in case.placements.iter_mut().zip(figures) {
            (p.mean_us, p.algbw_gbs, p.busbw_gbs) = (time, algbw, busbw);
        }
        case
    }

    /// Rows that nccl-tests printed on two GPUs, character by character.
    #[test]
    fn rows_equal_those_of_nccl_tests() {
        let text = shown(&[
            measured("all_reduce::sum::float::8B", [(27.29, 0.0003, 0.0003), (28.19, 0.0003, 0.0003)]),
            measured("all_reduce::prod::int8::1GiB", [(3312.83, 324.118, 324.118), (3317.41, 323.67, 323.67)]),
            measured("reduce::sum::bfloat16::512MiB", [(1460.71, 367.54, 367.54), (1460.4, 367.62, 367.62)]),
        ]);
        let rows: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
        assert_eq!(
            rows,
            [
                "           8             2     float     sum      -1    27.29    0.00    0.00       0    28.19    0.00    0.00       0",
                "  1073741824    1073741824      int8    prod      -1  3312.83  324.12  324.12       0  3317.41  323.67  323.67       0",
                "   536870912     268435456  bfloat16     sum       0  1460.71  367.54  367.54       0  1460.40  367.62  367.62       0",
            ]
        );
    }

    #[test]
    fn the_header_has_the_columns_of_nccl_tests() {
        let text = shown(&[]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].ends_with("nccl-library=22809"), "{}", lines[0]);
        assert_eq!(
            lines[1..7],
            [
                "# Collective test starting: all_reduce_perf",
                "# minBytes 8 maxBytes 1073741824",
                "#",
                "# Using devices",
                "#  Rank  0 on         vm device 0 0000:00:06 NVIDIA H200",
                "#  Rank  1 on         vm device 1 0000:00:07 NVIDIA H200",
            ]
        );
        let at = lines.iter().position(|l| l.contains("out-of-place")).unwrap();
        assert_eq!(
            lines[at..at + 3],
            [
                "#                                                              out-of-place                       in-place          ",
                "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong ",
                "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         ",
            ]
        );
    }

    #[test]
    fn the_average_is_over_both_placements_of_all_rows() {
        let text = shown(&[
            measured("all_reduce::sum::float::1MiB", [(30.0, 1.0, 100.0), (30.0, 1.0, 101.0)]),
            measured("all_reduce::sum::float::2MiB", [(30.0, 1.0, 20.5), (30.0, 1.0, 30.25)]),
        ]);
        assert!(
            text.ends_with(
                "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 62.9375 \n#\n\
             # Collective test concluded: all_reduce_perf\n#\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn wrong_elements_are_out_of_bounds_values() {
        let text = shown(&[sample::wrong()]);
        assert!(text.contains("       3    28.19"), "{text}");
        assert!(text.contains("# FAILED all_reduce::sum::float::1MiB (data): out-of-place: 3 wrong elements"));
        assert!(text.contains("# Out of bounds values : 3 FAILED\n"));
    }

    #[test]
    fn what_was_not_measured_is_not_applicable() {
        let mut alltoall = sample::case("alltoall::none::float::1KiB");
        alltoall.placements.truncate(1);
        alltoall.placements[0].wrong = None;
        let text = shown(&[alltoall, sample::hang(), sample::skip()]);
        let rows: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
        assert!(rows[0].ends_with("27.29    0.50    0.50     N/A      N/A     N/A     N/A     N/A"), "{}", rows[0]);
        assert_eq!(rows[1].matches("N/A").count(), 8);
        assert_eq!(rows.len(), 2);
        assert!(rows.iter().all(|r| r.len() == 118));
        assert!(text.contains("# skipped hypercube::none::float::1KiB: needs a power of two"));
        // a hang has no wrong value, and is no OK either
        assert!(text.contains("# Out of bounds values : 0 FAILED\n"));
    }

    #[test]
    fn the_verdict_on_bandwidth_is_there_only_where_it_was_judged() {
        assert!(shown(&[sample::slow()]).contains("# Avg bus bandwidth    : 119.5 FAILED\n"));
        let mut fine = sample::slow();
        (fine.outcome, fine.kind, fine.reference.status) = (Outcome::Pass, None, Assertion::Asserted);
        assert!(shown(&[fine]).contains("# Avg bus bandwidth    : 119.5 OK\n"));
        assert!(shown(&[sample::pass()]).contains("# Avg bus bandwidth    : 0.375 \n"));
    }

    #[test]
    fn large_numbers_keep_their_column() {
        assert_eq!(fit(9999.99, 7), "9999.99");
        assert_eq!(fit(9999.996, 7), "10000.0");
        assert_eq!(fit(123_456.7, 7), "123457");
        assert_eq!(fit(12_345_678.0, 7), "1.2e7");
        assert_eq!(fit(1234.5, 6), "1234.5");
    }

    #[test]
    fn averages_have_six_significant_digits() {
        for (value, text) in [
            (62.947_88, "62.9479"),
            (63.255, "63.255"),
            (0.0, "0"),
            (476.0, "476"),
            (0.001_234_567_8, "0.00123457"),
            (1234.567, "1234.57"),
            (f64::NAN, "0"),
        ] {
            assert_eq!(six_digits(value), text);
        }
    }

    #[test]
    fn versions_are_the_numbers_that_nccl_gives_itself() {
        for (text, code) in [("2.28.9", 22809), ("2.8.3", 2803), ("2.4.8", 2408), ("", 0), ("odd", 0)] {
            assert_eq!(version_code(text), code);
        }
    }
}
