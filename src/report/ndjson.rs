//! Events on standard output, for machines: one JSON object a line.
//!
//! Every object has `event`: `started`, `case_started`, `case_finished`, `aborted` or `finished`. Cases, environment
//! and summary are as in `collcheck.results/1`.

use std::io::Write;

use serde::Serialize;

use super::Pipe;
use crate::backend::Environment;
use crate::run::event::{Consumer, Event};
use crate::run::result::{CaseResult, Summary};

/// An event as it is written.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line<'a> {
    Started {
        collcheck: &'static str,
        at: String,
        command: &'a [String],
        seed: u64,
        environment: &'a Environment,
        cases: usize,
    },
    CaseStarted {
        name: String,
    },
    CaseFinished {
        case: &'a CaseResult,
    },
    Aborted {
        reason: &'a str,
    },
    Finished {
        at: String,
        summary: &'a Summary,
    },
}

/// The consumer.
pub struct NdJson {
    out: Pipe,
}

impl NdJson {
    /// Writes to `out`; its being closed is no error.
    pub fn new(out: Box<dyn Write + Send>) -> NdJson {
        NdJson { out: Pipe::new(out) }
    }
}

impl Consumer for NdJson {
    fn take(&mut self, event: &Event) -> anyhow::Result<()> {
        let line = match event {
            Event::Started { at, command, seed, environment, cases } => Line::Started {
                collcheck: env!("CARGO_PKG_VERSION"),
                at: at.to_rfc3339(),
                command,
                seed: *seed,
                environment,
                cases: *cases,
            },
            Event::CaseStarted { case } => Line::CaseStarted { name: case.name() },
            Event::CaseFinished { result } => Line::CaseFinished { case: result },
            Event::Aborted { reason } => Line::Aborted { reason },
            Event::Finished { at, summary } => Line::Finished { at: at.to_rfc3339(), summary },
        };
        let mut text = serde_json::to_string(&line)?;
        text.push('\n');
        self.out.write_all(text.as_bytes())?;
        self.out.flush()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn every_event_is_one_json_object_on_one_line() {
        let out = sample::Shared::default();
        let mut cases = sample::all();
        cases[1].message = sample::HOSTILE.into();
        let mut events = sample::events(&cases);
        events.insert(13, Event::Aborted { reason: "rank 1\ndied".into() });
        sample::feed(&mut NdJson::new(Box::new(out.clone())), &events);
        let text = out.text();
        let lines: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(lines.len(), events.len());
        assert_eq!(lines[0]["event"], "started");
        assert_eq!(lines[0]["environment"]["device"], "NVIDIA H200");
        assert_eq!(lines[3]["event"], "case_started");
        assert_eq!(lines[4]["case"]["message"], sample::HOSTILE);
        assert_eq!(lines[4]["case"]["kind"], "data");
        assert_eq!(lines[13]["reason"], "rank 1\ndied");
        assert_eq!(lines[14]["summary"]["failed"], 3);
    }
}
