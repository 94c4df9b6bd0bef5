//! What the system says of this machine. Everything is optional: a system without `/proc` gives less.

use std::fs;

/// The processor's model, else its architecture.
pub(super) fn processor() -> String {
    read("/proc/cpuinfo").and_then(|text| model_name(&text)).unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// The host's name, empty where unknown.
pub(super) fn host_name() -> String {
    read("/proc/sys/kernel/hostname").map(|name| name.trim().to_owned()).unwrap_or_default()
}

/// Operating system and kernel.
pub(super) fn system() -> String {
    let part = |name: &str| read(&format!("/proc/sys/kernel/{name}")).map(|text| text.trim().to_owned());
    match (part("ostype"), part("osrelease")) {
        (Some(name), Some(release)) => format!("{name} {release}"),
        _ => std::env::consts::OS.to_owned(),
    }
}

/// Bytes that programs can still take without swapping: what the kernel estimates, or less in a limited control group.
pub(super) fn available_memory() -> Option<u64> {
    let machine = available(&read("/proc/meminfo")?)?;
    Some(control_group_rest().map_or(machine, |rest| rest.min(machine)))
}

/// What the control group's limit leaves, where the usual mount shows one (version 2, then 1).
fn control_group_rest() -> Option<u64> {
    let rest = |limit: &str, used: &str| {
        let limit: u64 = read(limit)?.trim().parse().ok()?;
        let used: u64 = read(used)?.trim().parse().ok()?;
        Some(limit.saturating_sub(used))
    };
    rest("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current")
        .or_else(|| rest("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"))
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

fn model_name(cpuinfo: &str) -> Option<String> {
    let value = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"))?;
    Some(value.trim_start().strip_prefix(':')?.trim().to_owned())
}

fn available(meminfo: &str) -> Option<u64> {
    let value = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_read_as_the_kernel_writes_them() {
        let meminfo = "MemTotal:       24689200 kB\nMemFree:        1 kB\nMemAvailable:   23000000 kB\n";
        assert_eq!(available(meminfo), Some(23_000_000 * 1024));
        let cpuinfo = "processor\t: 0\nmodel name\t: AMD EPYC 9654 96-Core Processor\n";
        assert_eq!(model_name(cpuinfo).as_deref(), Some("AMD EPYC 9654 96-Core Processor"));
        assert_eq!((available("MemFree: 1 kB"), model_name("processor : 0")), (None, None));
    }

    #[test]
    fn a_machine_always_has_a_processor_and_a_system() {
        assert!(!processor().is_empty() && !system().is_empty());
    }
}
