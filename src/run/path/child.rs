//! Cases in a process of their own, whose events are read from its standard output.

use std::collections::{HashMap, VecDeque};
use std::io::{self, BufRead, BufReader};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::Relaunch;
use super::logging::{self, Logging};
use super::setting::Settings;
use crate::run::result::{CaseResult, FailKind};

/// Lines of standard error that are kept.
const TAIL: usize = 12;

/// How often one who waits looks whether the run was interrupted.
const LOOK: Duration = Duration::from_millis(50);

/// How long a process that has closed its output may take to end.
const FAREWELL: Duration = Duration::from_secs(5);

/// A process that runs some cases.
pub struct Child {
    process: std::process::Child,
    events: Receiver<Heard>,
    errors: Arc<Mutex<VecDeque<String>>>,
    listener: Option<thread::JoinHandle<()>>,
    /// Results that were not asked for yet.
    early: HashMap<String, CaseResult>,
    /// The case that is running.
    running: Option<String>,
    patience: Duration,
    /// Why no more results come.
    gone: Option<Gone>,
    /// Removed at the end, in case it did not get that far itself.
    log: Option<std::path::PathBuf>,
}

/// Why a case has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    /// Crash or hang.
    pub kind: FailKind,
    /// What happened.
    pub message: String,
}

impl Gone {
    /// The process could not be started.
    pub fn before_start(why: &str) -> Gone {
        Gone { kind: FailKind::Crash, message: format!("the process for this path cannot be started: {why}") }
    }
}

/// An event as [`crate::report::ndjson`] writes it, as far as it matters here.
#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Heard {
    CaseStarted {
        name: String,
    },
    CaseFinished {
        case: Box<CaseResult>,
    },
    #[serde(other)]
    Other,
}

impl Child {
    /// Starts it for these cases. `patience` is how long it may be silent.
    pub fn start(
        relaunch: &Relaunch,
        settings: &Settings,
        logging: &Logging,
        names: &[String],
        patience: Duration,
    ) -> io::Result<Child> {
        let mut command = Command::new(&relaunch.program);
        command.args(&relaunch.arguments).args(names);
        // the arguments say all: a report file of this run must not be written by that one too
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("COLLCHECK_")) {
            command.env_remove(name);
        }
        command.envs(settings.iter());
        // else the variables of this process serve: its file is named by the process that writes it
        let log = if *logging == Logging::Unset { Some(logging::settings()) } else { None };
        command.envs(log.iter().flatten().map(|(name, value)| (*name, value)));
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let log = log.and_then(|settings| logging::file_of(&settings, process.id()));

        let (send, events) = channel();
        let errors = Arc::new(Mutex::new(VecDeque::new()));
        if let Some(stdout) = process.stdout.take() {
            thread::Builder::new().name("results".to_owned()).spawn(move || {
                each_line(stdout, |line| {
                    // whatever else is printed there is not meant for this end
                    serde_json::from_slice(line).map_or(true, |event| send.send(event).is_ok())
                });
            })?;
        }
        let mut listener = None;
        if let Some(stderr) = process.stderr.take() {
            let errors = errors.clone();
            let thread = thread::Builder::new().name("errors".to_owned()).spawn(move || {
                each_line(stderr, |line| {
                    let mut kept = errors.lock().unwrap_or_else(PoisonError::into_inner);
                    kept.push_back(String::from_utf8_lossy(line).trim_end().to_owned());
                    if kept.len() > TAIL {
                        kept.pop_front();
                    }
                    true
                });
            })?;
            listener = Some(thread);
        }
        let early = HashMap::new();
        Ok(Child { process, events, errors, listener, early, running: None, patience, gone: None, log })
    }

    /// Waits for the result of a case, or until `interrupt` is set.
    pub fn result(&mut self, name: &str, interrupt: &AtomicBool) -> Result<CaseResult, Gone> {
        let mut heard = Instant::now();
        loop {
            if let Some(result) = self.early.remove(name) {
                return Ok(result);
            }
            if let Some(gone) = &self.gone {
                return Err(gone.clone());
            }
            match self.events.recv_timeout(LOOK) {
                Ok(event) => {
                    heard = Instant::now();
                    self.note(event);
                }
                Err(RecvTimeoutError::Timeout) if interrupt.load(Ordering::Relaxed) => {
                    let _ = self.process.kill();
                    return Err(self.lost(name, FailKind::Crash, "was interrupted"));
                }
                Err(RecvTimeoutError::Timeout) if heard.elapsed() < self.patience => {}
                Err(RecvTimeoutError::Timeout) => {
                    let _ = self.process.kill();
                    let silent = format!("said nothing for {:.0} s and was killed", self.patience.as_secs_f64());
                    return Err(self.lost(name, FailKind::Hang, &silent));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let ended = match self.wait() {
                        Some(status) => format!("ended with {status}"),
                        None => "ended".to_owned(),
                    };
                    return Err(self.lost(name, FailKind::Crash, &ended));
                }
            }
        }
    }

    fn note(&mut self, event: Heard) {
        match event {
            Heard::CaseStarted { name } => self.running = Some(name),
            Heard::CaseFinished { case } => {
                self.running = None;
                self.early.insert(case.name.clone(), *case);
            }
            Heard::Other => {}
        }
    }

    /// What to say of the case that was waited for, and keeps what to say of those after it.
    fn lost(&mut self, name: &str, kind: FailKind, how: &str) -> Gone {
        let at = self.running.as_ref().map_or_else(|| "before its first case".to_owned(), |case| format!("in {case}"));
        // what it said last may still be on its way
        wait_for(Duration::from_secs(1), || {
            self.listener.as_ref().is_none_or(|thread| thread.is_finished()).then_some(())
        });
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let said = errors.iter().filter(|line| !line.is_empty()).cloned().collect::<Vec<_>>().join("\n");
        let said = if said.is_empty() { said } else { format!("; it said:\n{said}") };
        let later = Gone { kind, message: format!("not run: the process for this path {how} {at}") };
        self.gone = Some(later.clone());
        let guilty = self.running.as_deref().is_none_or(|running| running == name);
        if guilty { Gone { kind, message: format!("the process for this path {how} {at}{said}") } } else { later }
    }

    fn wait(&mut self) -> Option<ExitStatus> {
        wait_for(FAREWELL, || self.process.try_wait().ok().flatten())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let ended = matches!(self.process.try_wait(), Ok(Some(_)));
        // one that has given all its results is left to end by itself
        if !ended && (self.gone.is_some() || self.running.is_some() || self.wait().is_none()) {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
        if let Some(log) = &self.log {
            let _ = std::fs::remove_file(log);
        }
    }
}

/// Asks again and again until there is an answer, or time is up.
fn wait_for<T>(time: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + time;
    loop {
        let answer = ask();
        if answer.is_some() || Instant::now() >= deadline {
            return answer;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Reads lines, whatever bytes they have, until the end or until `take` has had enough.
fn each_line(from: impl io::Read, mut take: impl FnMut(&[u8]) -> bool) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
        if !take(&line) {
            return;
        }
        line.clear();
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::case::Case;
    use crate::run::assemble::frame;
    use crate::run::result::Outcome;

    const CASES: [&str; 3] = [
        "all_reduce::sum::float::8B@ring+ll",
        "all_reduce::sum::float::64B@ring+ll",
        "all_reduce::sum::float::1KiB@ring+ll",
    ];

    fn started(name: &str) -> String {
        format!("echo '{{\"event\":\"case_started\",\"name\":\"{name}\"}}'\n")
    }

    fn finished(name: &str) -> String {
        let case: Case = name.parse().unwrap();
        let result = serde_json::to_string(&frame(&case, 2)).unwrap();
        format!("echo '{{\"event\":\"case_finished\",\"case\":{result}}}'\n")
    }

    /// A child that does what the script says.
    fn child(script: &str, patience: Duration) -> Child {
        let relaunch = Relaunch { program: "/bin/sh".into(), arguments: vec!["-c".into(), script.into(), "sh".into()] };
        let settings = Settings::of(&CASES[0].parse().unwrap());
        Child::start(&relaunch, &settings, &Logging::Unset, &CASES.map(str::to_owned), patience).unwrap()
    }

    static GO: AtomicBool = AtomicBool::new(false);
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn results_come_by_name_and_other_output_does_no_harm() {
        let script = format!(
            "echo 'NCCL version 2.28.9'; echo '{{\"event\":\"new\",\"x\":1}}'; printf '\\377\\n'\n{}{}{}",
            started(CASES[0]),
            finished(CASES[0]),
            finished(CASES[1])
        );
        let mut child = child(&script, LONG);
        assert_eq!(child.result(CASES[1], &GO).unwrap().name, CASES[1]);
        assert_eq!(child.result(CASES[0], &GO).unwrap().outcome, Outcome::Pass);
    }

    #[test]
    fn the_child_has_the_variables_of_its_path_and_of_the_log_and_gets_the_names() {
        let script = "test \"$NCCL_ALGO/$NCCL_PROTO/$NCCL_DEBUG/$NCCL_DEBUG_SUBSYS\" = Ring/LL/INFO/TUNING || exit 7
            case $NCCL_DEBUG_FILE in *collcheck-path-*.%p.log) ;; *) exit 8;; esac
            test -z \"$COLLCHECK_JSON\" || exit 9
            test \"$#/$3\" = 3/all_reduce::sum::float::1KiB@ring+ll || exit 10
            exit 0";
        let gone = child(script, LONG).result(CASES[0], &GO).unwrap_err();
        assert!(gone.message.contains("exit status: 0 before its first case"), "{}", gone.message);
    }

    #[test]
    fn a_crash_fails_the_case_that_ran_with_what_was_said_and_those_after_it_without() {
        let script =
            format!("{}{}{}echo broken >&2; kill -SEGV $$", started(CASES[0]), finished(CASES[0]), started(CASES[1]));
        let mut child = child(&script, LONG);
        assert!(child.result(CASES[0], &GO).is_ok());
        let guilty = child.result(CASES[1], &GO).unwrap_err();
        assert_eq!(guilty.kind, FailKind::Crash);
        assert!(guilty.message.ends_with("it said:\nbroken"), "{}", guilty.message);
        assert!(guilty.message.contains("signal: 11") && guilty.message.contains(CASES[1]), "{}", guilty.message);
        let innocent = child.result(CASES[2], &GO).unwrap_err();
        assert!(innocent.message.starts_with("not run: ") && innocent.message.contains(CASES[1]), "{innocent:?}");
        assert!(!innocent.message.contains("broken"));
    }

    #[test]
    fn a_hang_is_ended_and_is_a_hang() {
        let script = format!("{}{}exec sleep 600", finished(CASES[0]), started(CASES[1]));
        let mut child = child(&script, Duration::from_secs(1));
        assert!(child.result(CASES[0], &GO).is_ok());
        assert_eq!(child.result(CASES[1], &GO).unwrap_err().kind, FailKind::Hang);
        assert_eq!(child.result(CASES[2], &GO).unwrap_err().kind, FailKind::Hang);
        let before = Instant::now();
        drop(child);
        assert!(before.elapsed() < FAREWELL);
    }

    #[test]
    fn a_program_that_is_not_there_cannot_be_started() {
        let relaunch = Relaunch { program: "/no/such/program".into(), arguments: Vec::new() };
        let settings = Settings::default();
        assert!(Child::start(&relaunch, &settings, &Logging::Unset, &[], LONG).is_err());
    }
}
