//! Other processes, as the kernel tells of them.
#![allow(dead_code)] // each test binary uses its part

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

pub struct Process {
    pub pid: i32,
    pub parent: i32,
    pub state: char,
    pub started: u64,
}

pub fn process(pid: i32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let state = fields.first()?.chars().next()?;
    Some(Process { pid, parent: fields.get(1)?.parse().ok()?, state, started: fields.get(19)?.parse().ok()? })
}

pub fn children(parent: i32) -> Vec<Process> {
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(process).filter(|process| process.parent == parent).collect()
}

pub fn running(pid: i32) -> bool {
    process(pid).is_some_and(|process| process.state != 'Z')
}

pub fn send(pid: i32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid).unwrap(), signal);
}

pub fn within(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !holds() {
        assert!(Instant::now() < end, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
