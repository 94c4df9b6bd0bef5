//! Hosts that are namespaces of this machine: each has a network, a name and an /etc/hosts of its own, and a cable to a
//! switch that can be pulled.
//!
//! A namespace has no name here. It lasts as long as a process in it that reads from a pipe of this one, so that whatever
//! becomes of the test, panic or SIGKILL, nothing of it is left.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::process_support::{process, within};

/// A process that holds namespaces open.
struct Holder(Child);

impl Holder {
    fn start() -> Option<Holder> {
        let mut command = Command::new("unshare");
        command.args(["--net", "--uts", "--mount", "cat"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.stderr(Stdio::null()).spawn().ok()?;
        let named = format!("/proc/{}/comm", child.id());
        // by then it has left this process's namespaces
        within(Duration::from_secs(20), "namespaces", || {
            fs::read_to_string(&named).is_ok_and(|name| name.trim() == "cat") || child.try_wait().unwrap().is_some()
        });
        child.try_wait().unwrap().is_none().then_some(Holder(child))
    }

    /// A program in these namespaces; it replaces the process that is started.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.0.id().to_string(), "--net", "--uts", "--mount", program]);
        command
    }

    fn shell(&self, script: &str) -> Result<(), String> {
        let output = self.command("sh").args(["-ec", script]).output().map_err(|e| e.to_string())?;
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if output.status.success() { Ok(()) } else { Err(said) }
    }

    fn network(&self) -> PathBuf {
        network(self.0.id() as i32).unwrap()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn network(pid: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/net")).ok()
}

/// Hosts around a switch, at 10.77.0.1, 10.77.0.2 and so on.
pub struct Hosts {
    hosts: Vec<Holder>,
    switch: Holder,
    names: Vec<String>,
    _dir: TempDir,
}

impl Hosts {
    /// Makes hosts with these names, as `gpu01` or `job-0.pods.default.svc.cluster.local`. `None` where this user or machine
    /// cannot; then it is said, and is a failure where COLLCHECK_REQUIRE_NETNS is set.
    pub fn new(names: &[&str]) -> Option<Hosts> {
        match Hosts::make(names) {
            Ok(hosts) => Some(hosts),
            Err(why) => {
                assert!(std::env::var_os("COLLCHECK_REQUIRE_NETNS").is_none(), "no hosts can be made: {why}");
                eprintln!("not run: no hosts can be made of namespaces here: {why}");
                None
            }
        }
    }

    fn make(names: &[&str]) -> Result<Hosts, String> {
        let holder = || Holder::start().ok_or("no namespaces".to_owned());
        let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
        let known = dir.path().join("hosts");
        let short = |name: &str| name.split('.').next().unwrap_or(name).to_owned();
        let lines: Vec<String> =
            names.iter().zip(1..).map(|(name, at)| format!("10.77.0.{at} {name} {}\n", short(name))).collect();
        fs::write(&known, format!("127.0.0.1 localhost\n{}", lines.concat())).map_err(|e| e.to_string())?;

        let switch = holder()?;
        switch.shell("ip link add sw type bridge; ip link set sw up")?;
        let mut hosts = Vec::new();
        for (at, name) in names.iter().enumerate() {
            let host = holder()?;
            let pid = host.0.id();
            switch.shell(&format!(
                "ip link add port{at} type veth peer name eth0 netns {pid}; ip link set port{at} master sw up"
            ))?;
            host.shell(&format!(
                "echo {} > /proc/sys/kernel/hostname; mount --bind {} /etc/hosts; ip link set lo up; \
                 ip addr add 10.77.0.{}/24 dev eth0; ip link set eth0 up",
                short(name),
                known.display(),
                at + 1
            ))?;
            hosts.push(host);
        }
        Ok(Hosts { hosts, switch, names: names.iter().map(|name| short(name)).collect(), _dir: dir })
    }

    /// What a host calls itself.
    pub fn name(&self, host: usize) -> &str {
        &self.names[host]
    }

    /// A program on a host.
    pub fn command(&self, host: usize, program: &str) -> Command {
        self.hosts[host].command(program)
    }

    /// Pulls a host's cable: nothing passes any more, and nobody is told.
    pub fn cut(&self, host: usize) {
        self.switch.shell(&format!("ip link set port{host} down")).unwrap();
    }

    /// Puts it back.
    pub fn mend(&self, host: usize) {
        self.switch.shell(&format!("ip link set port{host} up")).unwrap();
    }

    /// Processes on a host, without the one that holds it.
    pub fn processes(&self, host: usize) -> Vec<i32> {
        let holder = &self.hosts[host];
        let here = holder.network();
        let pids = fs::read_dir(Path::new("/proc")).unwrap();
        let pids = pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
        let own = |pid: &i32| *pid != holder.0.id() as i32 && network(*pid).as_ref() == Some(&here);
        pids.filter(own).filter(|pid| process(*pid).is_some_and(|process| process.state != 'Z')).collect()
    }
}
