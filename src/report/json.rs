//! Writes `collcheck.results/1`.
//!
//! While the run lasts, results go to a journal beside the file (`FILE.partial`): a header line, then a line for each
//! case, flushed at once. At the end the file itself appears as a whole and the journal goes. So a run that was killed
//! keeps what it had; [`super::results::read_results`] reads either.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use chrono::Local;
use serde::Serialize;

use super::file::{CannotWrite, WholeFile};
use super::results::Header;
use crate::backend::Environment;
use crate::run::event::{Consumer, Event};
use crate::run::result::{SCHEMA, Summary};

/// Where the journal of `path` is.
pub fn journal_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".partial");
    PathBuf::from(name)
}

/// The consumer.
pub struct Json {
    file: WholeFile,
    /// `None` where the file is no regular one: nothing is kept beside a device.
    journal: Option<Journal>,
    header: Header,
    aborted: Option<String>,
    /// Cases as JSON, one a line both here and there.
    cases: Vec<String>,
}

struct Journal {
    path: PathBuf,
    file: File,
}

impl Json {
    /// Makes the journal, and so finds out whether results can be written to `path`.
    ///
    /// Results that are already there stay until the run begins, and go then: they are not this run's.
    pub fn create(path: &Path) -> Result<Json, CannotWrite> {
        let file = WholeFile::create(path)?;
        let journal = if file.is_regular() {
            let path = journal_path(path);
            match File::create(&path) {
                Ok(file) => Some(Journal { path, file }),
                Err(reason) => return Err(CannotWrite { path, reason }),
            }
        } else {
            None
        };
        let header = Header {
            schema: SCHEMA.to_owned(),
            collcheck: env!("CARGO_PKG_VERSION").to_owned(),
            started: Local::now().to_rfc3339(),
            command: Vec::new(),
            seed: 0,
            environment: Environment::default(),
            journal: true,
        };
        Ok(Json { file, journal, header, aborted: None, cases: Vec::new() })
    }

    fn log(&mut self, line: &str) -> Result<(), CannotWrite> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        // One write for the line: whoever reads it meanwhile sees whole lines.
        let result = journal.file.write_all(format!("{line}\n").as_bytes()).and_then(|()| journal.file.flush());
        result.map_err(|reason| CannotWrite { path: journal.path.clone(), reason })
    }

    fn finish(&mut self, finished: &str, summary: &Summary) -> Result<(), CannotWrite> {
        self.file.replace(|out| self.write(out, finished, summary))?;
        if let Some(journal) = self.journal.take() {
            fs::remove_file(&journal.path).map_err(|reason| CannotWrite { path: journal.path, reason })?;
        }
        Ok(())
    }

    /// A field a line and a case a line: small, and good to read in a diff.
    fn write(&self, out: &mut dyn Write, finished: &str, summary: &Summary) -> io::Result<()> {
        let h = &self.header;
        out.write_all(b"{\n")?;
        field(out, "schema", &h.schema)?;
        field(out, "collcheck", &h.collcheck)?;
        field(out, "started", &h.started)?;
        field(out, "finished", &finished)?;
        field(out, "command", &h.command)?;
        field(out, "seed", &h.seed)?;
        field(out, "environment", &h.environment)?;
        field(out, "aborted", &self.aborted)?;
        out.write_all(b"\"cases\": [")?;
        for (i, case) in self.cases.iter().enumerate() {
            write!(out, "{}\n{case}", if i == 0 { "" } else { "," })?;
        }
        write!(out, "\n],\n\"summary\": {}\n}}\n", json(summary)?)
    }
}

fn field(out: &mut dyn Write, name: &str, value: &impl Serialize) -> io::Result<()> {
    writeln!(out, "\"{name}\": {},", json(value)?)
}

fn json(value: &impl Serialize) -> io::Result<String> {
    serde_json::to_string(value).map_err(io::Error::from)
}

impl Consumer for Json {
    fn take(&mut self, event: &Event) -> anyhow::Result<()> {
        match event {
            Event::Started { at, command, seed, environment, .. } => {
                self.header.started = at.to_rfc3339();
                self.header.command.clone_from(command);
                self.header.seed = *seed;
                self.header.environment = (**environment).clone();
                let line = json(&self.header)?;
                self.log(&line)?;
                self.file.remove()?;
            }
            Event::CaseStarted { .. } => {}
            Event::CaseFinished { result } => {
                let line = json(result)?;
                self.log(&line)?;
                self.cases.push(line);
            }
            Event::Aborted { reason } => {
                self.aborted = Some(reason.clone());
                self.log(&json(&serde_json::json!({ "aborted": reason }))?)?;
            }
            Event::Finished { at, summary } => self.finish(&at.to_rfc3339(), summary)?,
        }
        Ok(())
    }
}

impl Drop for Json {
    /// A run that never began has nothing to keep.
    fn drop(&mut self) {
        if let Some(journal) = &self.journal
            && journal.file.metadata().is_ok_and(|m| m.len() == 0)
        {
            let _ = fs::remove_file(&journal.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::results::read_results;
    use crate::report::sample;

    #[test]
    fn the_file_has_the_fields_of_the_schema_and_the_journal_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.json");
        sample::feed(&mut Json::create(&path).unwrap(), &sample::events(&sample::all()));
        let value: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(value["schema"], "collcheck.results/1");
        assert_eq!(value["seed"], 42);
        assert_eq!(value["environment"]["nccl_version"], "2.28.9");
        assert_eq!(value["cases"][1]["placements"][0]["first_wrong"]["index"], 4711);
        assert_eq!(value["cases"][1]["placements"][0]["time_us"]["p99"], 30.5);
        assert_eq!(value["cases"][2]["kind"], "slow");
        assert_eq!(value["cases"][2]["variants"][0], "root1");
        assert_eq!(value["cases"][2]["reference"]["lower_gbs"], 300.0);
        assert_eq!(value["summary"]["wrong_elements"], 3);
        assert!(value["finished"].is_string() && value["started"].is_string());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_fault_has_its_record_and_other_cases_have_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.json");
        let cases = [sample::fault(), sample::pass()];
        sample::feed(&mut Json::create(&path).unwrap(), &sample::events(&cases));
        let value: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let fault = &value["cases"][0]["fault"];
        assert_eq!((&fault["name"], &fault["noticed_by"][0]), (&"size".into(), &"deadline".into()));
        assert_eq!((&fault["culprits"][0], &fault["armed"][0]["times"]), (&1.into(), &1.into()));
        assert!(value["cases"][1].get("fault").is_none());
        assert_eq!(read_results(&path).unwrap().cases, cases);
    }

    #[test]
    fn every_case_is_in_the_journal_before_the_next_begins() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.json");
        let mut json = Json::create(&path).unwrap();
        let events = sample::events(&sample::all());
        for (i, event) in events[..events.len() - 1].iter().enumerate() {
            json.take(event).unwrap();
            assert_eq!(read_results(&path).unwrap().cases.len(), i / 2);
        }
        assert!(!path.exists());
    }

    #[test]
    fn an_older_file_stays_until_the_run_begins_and_goes_then() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.json");
        fs::write(&path, "old").unwrap();
        let mut json = Json::create(&path).unwrap();
        assert!(path.exists());
        json.take(&sample::started(1)).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_run_that_could_not_start_leaves_a_file_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.json");
        let end = Event::Finished { at: sample::at(), summary: Summary::default() };
        let events = [Event::Aborted { reason: "no GPU".into() }, end];
        sample::feed(&mut Json::create(&path).unwrap(), &events);
        let results = read_results(&path).unwrap();
        assert_eq!(results.aborted.as_deref(), Some("no GPU"));
        assert!(results.cases.is_empty() && results.finished.is_some());
    }

    #[test]
    fn a_run_that_never_began_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        drop(Json::create(&dir.path().join("results.json")).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn results_can_go_to_a_device() {
        sample::feed(&mut Json::create(Path::new("/dev/null")).unwrap(), &sample::events(&sample::all()));
        assert!(!journal_path(Path::new("/dev/null")).exists());
    }

    #[test]
    fn a_full_disk_is_an_error_that_names_the_file() {
        let mut json = Json::create(Path::new("/dev/full")).unwrap();
        let error = sample::events(&[sample::pass()]).iter().find_map(|e| json.take(e).err()).unwrap();
        assert!(error.to_string().starts_with("cannot write /dev/full: "), "{error}");
    }
}
