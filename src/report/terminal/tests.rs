use std::sync::{Arc, Mutex};

use indicatif::TermLike;

use super::*;
use crate::report::sample::{self, Shared};

fn rerun() -> Vec<String> {
    ["collcheck", "run", "--suite", "my suite.toml"].map(str::to_owned).to_vec()
}

fn show(style: Style, cases: &[CaseResult]) -> String {
    let out = Shared::default();
    let mut terminal = Terminal::new(Box::new(out.clone()), style, rerun());
    sample::feed(&mut terminal, &sample::events(cases));
    out.text()
}

const GOLDEN: &str = "
running 6 cases on nccl 2.28.9: 2 ranks, NVIDIA H200, seed 42
test all_reduce::sum::float::8B ... ok  27.29 us 0.50 GB/s, in-place 28.19 us 0.25 GB/s
test all_reduce::sum::float::1MiB ... FAILED (data)  27.29 us 0.50 GB/s, in-place 28.19 us 0.25 GB/s
    out-of-place: 3 wrong elements on rank 1
      where     elements 4711 to 4713
      first     index 4711
      expected  1.5 (0x3fc00000)
      actual    3 (0x40400000)
      likely    rank 0's contribution counts twice (all 3)
    next: run it alone with --repeat 10; the same elements again speak for software, others for a race or a device
    1048576 bytes, 262144 elements, 2 ranks; ran RING/SIMPLE on 24 channels
test broadcast::none::bfloat16::1GiB@root1 ... FAILED (slow)  8947.80 us 120.00 GB/s, in-place 9023.00 us 119.00 GB/s
    out-of-place: busbw 120.00 GB/s, should be 300.00 to 350.00 (golden/h200.json)
    in-place: busbw 119.00 GB/s, should be 300.00 to 350.00 (golden/h200.json)
    1073741824 bytes, 536870912 elements, 2 ranks, root 1
test broadcast::none::bfloat16::512MiB ... ok, warned  8947.80 us 120.00 GB/s, in-place 9023.00 us 119.00 GB/s
    out-of-place: busbw 120.00 GB/s, should be 300.00 to 350.00 (golden/h200.json)
    in-place: busbw 119.00 GB/s, should be 300.00 to 350.00 (golden/h200.json)
    1073741824 bytes, 536870912 elements, 2 ranks, root 1
test alltoall::none::int8::64KiB ... FAILED (hang)
    no end after 30 s; rank 1 never called
    ncclAlltoAll
    65536 bytes, 32768 elements, 2 ranks
test hypercube::none::float::1KiB ... skipped, needs a power of two of ranks

environment:
    backend   nccl
    ranks     2
    device    NVIDIA H200, linked by nvlink
    NCCL      2.28.9 from /usr/lib/libnccl.so.2
    CUDA      13.0
    driver    580.159.04
    host      vm, Linux 6.8
    variable  NCCL_ALGO=Ring

failures:
    all_reduce::sum::float::1MiB (data): out-of-place: 3 wrong elements on rank 1
    broadcast::none::bfloat16::1GiB@root1 (slow): busbw 120.00 and 119.00 GB/s, should be 300.00 to 350.00 (golden/h200.json)
    alltoall::none::int8::64KiB (hang): no end after 30 s; rank 1 never called

skipped:
         1  needs a power of two of ranks

test result: FAILED. 2 passed; 3 failed; 1 skipped; finished in 12.50s
bandwidth: 1 asserted; 0 within a published figure only; 1 warned; 3 unasserted
wrong elements: 3; seed 42

to run the failures again:
    collcheck run --suite 'my suite.toml' --seed 42 --exact all_reduce::sum::float::1MiB \
broadcast::none::bfloat16::1GiB@root1 alltoall::none::int8::64KiB
";

#[test]
fn without_a_terminal_every_case_has_a_line_and_failures_say_all() {
    assert_eq!(show(Style::Lines, &sample::all()), GOLDEN);
}

#[test]
fn letters_come_with_counts_and_details_at_the_end() {
    let mut cases = sample::all();
    for _ in 0..90 {
        cases.push(sample::pass());
    }
    let text = show(Style::Letters, &cases);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[2], format!(".FFwFs{} 88/96", ".".repeat(82)));
    assert_eq!(lines[3], "........");
    assert!(
        text.contains("    all_reduce::sum::float::1MiB (data)\n        out-of-place: 3 wrong elements on rank 1\n"),
        "{text}"
    );
    assert!(text.contains("        no end after 30 s; rank 1 never called\n        ncclAlltoAll\n"));
}

#[test]
fn a_run_without_failures_says_ok_and_offers_no_rerun() {
    let text = show(Style::Lines, &[sample::pass()]);
    assert!(text.contains("test result: ok. 1 passed; 0 failed"), "{text}");
    assert!(!text.contains("again"));
}

#[test]
fn a_run_in_which_all_was_skipped_is_not_ok() {
    let text = show(Style::Lines, &[sample::skip()]);
    assert!(text.contains("test result: NOTHING WAS TESTED. 0 passed; 0 failed; 1 skipped"), "{text}");
}

#[test]
fn an_aborted_run_says_why_and_how_much_was_not_run() {
    let out = Shared::default();
    let mut terminal = Terminal::new(Box::new(out.clone()), Style::Lines, rerun());
    let mut events = sample::events(&sample::all());
    // the second case begins and never ends
    events.splice(4..13, [Event::Aborted { reason: "rank 1 was \x1b[31mkilled\n".into() }]);
    if let Some(Event::Finished { summary, .. }) = events.last_mut() {
        *summary = sample::summary(&[sample::pass()]);
    }
    sample::feed(&mut terminal, &events);
    let text = out.text();
    assert!(text.contains("1MiB ... \nerror: rank 1 was \\x1b[31mkilled\n"), "{text}");
    assert!(text.contains("test result: ABORTED. 1 passed; 0 failed; 0 skipped; 5 not run;"), "{text}");
}

#[test]
fn the_case_that_runs_is_named_before_it_ends() {
    let out = Shared::default();
    let mut terminal = Terminal::new(Box::new(out.clone()), Style::Lines, rerun());
    sample::feed(&mut terminal, &sample::events(&[sample::hang()])[..2]);
    assert!(out.text().ends_with("\ntest alltoall::none::int8::64KiB ... "));
}

#[test]
fn skips_are_grouped_by_reason_most_frequent_first() {
    let mut cases = vec![sample::skip(); 3];
    cases[0].message = "too few GPUs".into();
    for i in 0..40 {
        let mut case = sample::skip();
        case.message = format!("reason {i:02}");
        cases.push(case);
    }
    let text = show(Style::Lines, &cases);
    let (_, list) = text.split_once("\nskipped:\n").unwrap();
    assert!(list.starts_with("         2  needs a power of two of ranks\n         1  reason 00\n"), "{list}");
    assert!(list.contains("\n        22  for 22 more reasons\n"), "{list}");
}

#[test]
fn nothing_that_a_library_prints_reaches_the_terminal_as_an_escape() {
    let mut cases = sample::all();
    for case in &mut cases {
        case.message = sample::HOSTILE.into();
    }
    if let Some(first) = &mut cases[1].placements[0].first_wrong {
        first.explanation = sample::HOSTILE.into();
    }
    for style in [Style::Lines, Style::Letters] {
        let text = show(style, &cases);
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    }
}

#[test]
fn colours_are_there_only_where_asked_for() {
    let out = Shared::default();
    let mut terminal = Terminal::new(Box::new(out.clone()), Style::Lines, rerun()).with_color(true);
    sample::feed(&mut terminal, &sample::events(&sample::all()));
    assert!(out.text().contains("\x1b[1;31mFAILED\x1b[0m (data)"));
    assert!(!show(Style::Lines, &sample::all()).contains('\x1b'));
}

#[test]
fn a_closed_pipe_ends_output_quietly() {
    for style in [Style::Lines, Style::Letters] {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        sample::feed(&mut Terminal::new(Box::new(writer), style, rerun()), &sample::events(&sample::all()));
    }
}

#[test]
fn many_failures_make_no_endless_command() {
    let cases: Vec<CaseResult> = (0..60)
        .map(|i| {
            let mut case = sample::hang();
            case.name = format!("alltoall::none::int8::{}B", i + 1);
            case
        })
        .collect();
    let text = show(Style::Lines, &cases);
    assert!(text.contains("to run the first 50 of 60 failures again:"), "{text}");
}

/// A terminal that records what a bar draws on it.
#[derive(Debug, Clone, Default)]
struct Screen(Arc<Mutex<String>>);

impl TermLike for Screen {
    fn width(&self) -> u16 {
        200
    }
    fn move_cursor_up(&self, _: usize) -> io::Result<()> {
        Ok(())
    }
    fn move_cursor_down(&self, _: usize) -> io::Result<()> {
        Ok(())
    }
    fn move_cursor_right(&self, _: usize) -> io::Result<()> {
        Ok(())
    }
    fn move_cursor_left(&self, _: usize) -> io::Result<()> {
        Ok(())
    }
    fn write_line(&self, s: &str) -> io::Result<()> {
        self.write_str(s)?;
        self.write_str("\n")
    }
    fn write_str(&self, s: &str) -> io::Result<()> {
        self.0.lock().unwrap().push_str(s);
        Ok(())
    }
    fn clear_line(&self) -> io::Result<()> {
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn on_a_terminal_a_bar_shows_progress_and_lines_only_what_needs_attention() {
    let (out, screen) = (Shared::default(), Screen::default());
    let target = ProgressDrawTarget::term_like(Box::new(screen.clone()));
    let mut terminal = Terminal::new(Box::new(out.clone()), Style::Lines, rerun()).with_bar(target);
    let events = sample::events(&sample::all());
    sample::feed(&mut terminal, &events[..events.len() - 1]);
    let bar = terminal.bar.clone().unwrap();
    assert_eq!((bar.position(), bar.length()), (6, Some(6)));
    assert_eq!(bar.message(), "hypercube::none::float::1KiB");
    bar.suspend(|| ()); // draws at once
    let drawn = screen.0.lock().unwrap().clone();
    assert!(drawn.contains("6/6") && drawn.contains("cases/s") && drawn.contains(", 3 failed"), "{drawn}");
    let text = out.text();
    assert!(text.contains("test alltoall::none::int8::64KiB ... FAILED (hang)\n    no end after 30 s"), "{text}");
    assert!(text.contains("512MiB ... ok, warned"));
    assert!(!text.contains("8B ... ok") && !text.contains("skipped"), "{text}");
    sample::feed(&mut terminal, &events[events.len() - 1..]);
    assert!(bar.is_finished());
    assert!(out.text().contains("test result: FAILED. 2 passed; 3 failed; 1 skipped"));
}

#[test]
fn a_bar_that_cannot_be_drawn_swallows_no_line() {
    let out = Shared::default();
    let mut terminal =
        Terminal::new(Box::new(out.clone()), Style::Lines, rerun()).with_bar(ProgressDrawTarget::hidden());
    sample::feed(&mut terminal, &sample::events(&sample::all()));
    assert!(out.text().contains("1MiB ... FAILED (data)") && out.text().contains("test result: FAILED"));
}
