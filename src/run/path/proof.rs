//! From log lines to the path that a case took, and whether it is the one that was asked for.

use crate::case::{Case, Forced, Primitive};
use crate::evidence::nccl_log::{Choice, Line, Message, Tuning};
use crate::run::result::{CaseResult, FailKind, Outcome, Path};

/// How NCCL says that it has no such path here: enqueue.cc, symmetric_sched.cc. Versions go on differently: "available",
/// or from 2.32 on "nor symKernelId available".
const NOT_HERE: [&str; 2] = ["no algorithm/protocol ", "no symmetric kernel available"];

/// Puts the path into the result. A case that took another path than it was to take is no test of it, and skipped; what
/// failed stays failed.
pub fn prove(case: &Case, lines: &[Line], result: &mut CaseResult) {
    let choices = choices(case.primitive, lines);
    result.path = path(&choices);
    let forced = case.forced();
    if forced.is_empty() {
        return;
    }
    let wanted: Vec<String> = forced.iter().map(|f| f.logged(case.primitive)).collect();
    let wanted = wanted.join("/");
    if result.kind == Some(FailKind::Error) {
        let message = result.message.to_ascii_lowercase();
        if NOT_HERE.iter().any(|says| message.contains(says)) {
            skip(result, format!("path not available: wanted {wanted}; {}", result.message));
        }
        return;
    }
    let taken = choices.iter().all(|choice| forced.iter().all(|f| takes(choice, *f, case.primitive)));
    let why = match &result.path {
        None => format!("path not proven: wanted {wanted}; NCCL's log has no line about it, as before 2.20"),
        Some(_) if taken => return,
        Some(ran) => format!("path not taken: wanted {wanted}, ran {}/{}", ran.algo, ran.proto),
    };
    match result.outcome {
        Outcome::Pass => skip(result, why),
        Outcome::Fail => result.message = format!("{}\n{why}", result.message),
        Outcome::Skip => {}
    }
}

fn skip(result: &mut CaseResult, why: String) {
    result.outcome = Outcome::Skip;
    result.kind = None;
    result.message = why;
}

/// What NCCL chose for a collective, each choice once, in the order in which it came up.
fn choices(primitive: Primitive, lines: &[Line]) -> Vec<&Choice> {
    let name = primitive.name().replace('_', "");
    let of_it = |t: &Tuning| t.function.as_ref().is_none_or(|function| function.eq_ignore_ascii_case(&name));
    let mut choices: Vec<&Choice> = Vec::new();
    for line in lines {
        if let Message::Tuning(tuning) = &line.message
            && of_it(tuning)
            && !choices.contains(&&tuning.choice)
        {
            choices.push(&tuning.choice);
        }
    }
    choices
}

/// All choices as one path: different names joined by `+`, the most channels. 0 channels are an unknown number.
fn path(choices: &[&Choice]) -> Option<Path> {
    let one = |choice: &Choice| match choice {
        Choice::Classic { algo, proto, channels } => {
            let channels = channels.map_or(0, |(first, last)| last.saturating_sub(first).saturating_add(1));
            (algo.clone(), proto.clone(), channels)
        }
        Choice::Symmetric { kernel, channels } => ("SYMMETRIC".to_owned(), kernel.clone(), *channels),
        Choice::CopyEngine { kind } => ("COPY_ENGINE".to_owned(), kind.clone(), 0),
    };
    let parts: Vec<(String, String, u32)> = choices.iter().map(|choice| one(choice)).collect();
    let most = parts.iter().map(|(.., channels)| *channels).max()?;
    let names = |of: &dyn Fn(&(String, String, u32)) -> String| {
        let mut names: Vec<String> = Vec::new();
        for name in parts.iter().map(of) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.join("+")
    };
    Some(Path { algo: names(&|part| part.0.clone()), proto: names(&|part| part.1.clone()), channels: most })
}

fn takes(choice: &Choice, forced: Forced, primitive: Primitive) -> bool {
    let wanted = forced.logged(primitive);
    match choice {
        Choice::Classic { algo, .. } if forced.is_algorithm() => *algo == wanted,
        Choice::Classic { proto, .. } if forced.is_protocol() => *proto == wanted,
        Choice::Symmetric { kernel, .. } => *kernel == wanted,
        Choice::Classic { .. } | Choice::CopyEngine { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::nccl_log;
    use crate::run::assemble::frame;

    fn log(texts: &[&str]) -> Vec<Line> {
        let text: String = texts.iter().map(|text| format!("n:1:2 [0] NCCL INFO {text}\n")).collect();
        nccl_log::read(text.as_bytes())
    }

    const RING: &str = "AllReduce: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..21}";
    const TREE: &str = "AllReduce: 8 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}";

    fn proven(case: &str, texts: &[&str], change: impl FnOnce(&mut CaseResult)) -> CaseResult {
        let case: Case = case.parse().unwrap();
        let mut result = frame(&case, 2);
        change(&mut result);
        prove(&case, &log(texts), &mut result);
        result
    }

    fn told(path: Option<Path>) -> Option<(String, String, u32)> {
        path.map(|p| (p.algo, p.proto, p.channels))
    }

    #[test]
    fn the_path_is_what_was_logged_for_the_collective() {
        let path = |texts: &[&str]| told(proven("all_reduce::sum::float::8B", texts, |_| {}).path);
        let some = |algo: &str, proto: &str, channels| Some((algo.to_owned(), proto.to_owned(), channels));
        assert_eq!(path(&[]), None);
        assert_eq!(path(&[RING, RING]), some("RING", "LL", 22));
        assert_eq!(path(&[RING, TREE, RING]), some("RING+TREE", "LL", 22));
        assert_eq!(path(&["8 Bytes -> Algo 0 proto 2 time 3.5"]), some("TREE", "SIMPLE", 0));
        assert_eq!(path(&["AllGather: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..21}"]), None);
        let kernel = "AllReduce [Symmetric]: 8 Bytes -> Kernel AllReduce_AGxLL_R nchannels 4 nthreads 512";
        assert_eq!(path(&[kernel]), some("SYMMETRIC", "AllReduce_AGxLL_R", 4));
    }

    #[test]
    fn a_case_passes_only_on_the_path_that_it_names() {
        let outcome = |case: &str, texts: &[&str]| {
            let result = proven(&format!("all_reduce::sum::float::8B@{case}"), texts, |_| {});
            (result.outcome, result.message)
        };
        assert_eq!(outcome("ring+ll", &[RING]), (Outcome::Pass, String::new()));
        assert_eq!(outcome("ll", &[RING, TREE]).0, Outcome::Pass);
        let skipped = (Outcome::Skip, "path not taken: wanted RING/LL, ran TREE/LL".to_owned());
        assert_eq!(outcome("ring+ll", &[TREE]), skipped);
        assert_eq!(outcome("ring", &[RING, TREE]).1, "path not taken: wanted RING, ran RING+TREE/LL");
        assert!(outcome("ring", &[]).1.starts_with("path not proven: wanted RING;"));
        let kernel = "AllReduce [Symmetric]: 8 Bytes -> Kernel AllReduce_AGxLL_R nchannels 4 nthreads 512";
        assert_eq!(outcome("sym-agxll_r", &[kernel]).0, Outcome::Pass);
        assert_eq!(outcome("ring", &[kernel]).0, Outcome::Skip);
    }

    #[test]
    fn a_path_that_the_machine_has_not_is_skipped_and_other_failures_stay() {
        let failed = |kind, message: &str, texts: &[&str]| {
            proven("all_reduce::sum::float::8B@nvls+simple", texts, |result| {
                result.outcome = Outcome::Fail;
                result.kind = Some(kind);
                result.message = message.to_owned();
            })
        };
        for says in
            ["Error : no algorithm/protocol available for", "No algorithm/protocol nor symKernelId available for"]
        {
            let refused = format!("rank 0: ncclAllReduce returned ncclInvalidUsage: {says} function AllReduce");
            let result = failed(FailKind::Error, &refused, &[]);
            assert_eq!((result.outcome, result.kind), (Outcome::Skip, None));
            assert!(
                result.message.starts_with("path not available: wanted NVLS/SIMPLE; rank 0: "),
                "{}",
                result.message
            );
        }
        assert_eq!(failed(FailKind::Error, "rank 0: unhandled cuda error", &[]).outcome, Outcome::Fail);
        let wrong = failed(FailKind::Data, "1 wrong element", &[RING]);
        assert_eq!(wrong.kind, Some(FailKind::Data));
        assert_eq!(wrong.message, "1 wrong element\npath not taken: wanted NVLS/SIMPLE, ran RING/LL");
    }
}
