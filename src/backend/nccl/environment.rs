//! What results hold for, as far as the host tells: names, versions and the variables that matter.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;

/// Variables kept besides `NCCL_*`: which GPUs are visible, and what launchers say of ranks and places.
const KEPT: [&str; 20] = [
    "CUDA_VISIBLE_DEVICES",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "SLURM_LOCALID",
    "SLURM_STEP_NUM_TASKS",
    "PMI_RANK",
    "PMI_SIZE",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "PET_NODE_RANK",
    "PET_NNODES",
    "PET_NPROC_PER_NODE",
    "JOB_COMPLETION_INDEX",
    "NODE_RANK",
];

/// Beginnings of names that are kept.
const KEPT_PREFIXES: [&str; 3] = ["NCCL_", "OMPI_COMM_WORLD_", "MV2_COMM_WORLD_"];

/// The variables that may be kept, and nothing else of the environment.
pub fn variables(all: impl Iterator<Item = (OsString, OsString)>) -> BTreeMap<String, String> {
    all.filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .filter(|(name, _)| KEPT.contains(&name.as_str()) || KEPT_PREFIXES.iter().any(|p| name.starts_with(p)))
        .map(|(name, value)| (name, value.to_string_lossy().into_owned()))
        .collect()
}

/// The host's name, empty where unknown.
pub fn host() -> String {
    line("/proc/sys/kernel/hostname")
}

/// Operating system and kernel, as `Ubuntu 24.04.1 LTS, Linux 6.8.0`.
pub fn os() -> String {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let kernel = line("/proc/sys/kernel/osrelease");
    [pretty_name(&release), if kernel.is_empty() { kernel } else { format!("Linux {kernel}") }]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(", ")
}

/// The kernel driver's version, as `580.159.03`, empty where unknown.
pub fn driver() -> String {
    let version = line("/sys/module/nvidia/version");
    if version.is_empty() {
        driver_version(&fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default())
    } else {
        version
    }
}

/// A CUDA version as the driver counts it: 12020 is `12.2`.
pub fn cuda_version(code: i32) -> String {
    format!("{}.{}", code / 1000, code % 1000 / 10)
}

fn line(file: &str) -> String {
    fs::read_to_string(file).unwrap_or_default().trim().to_owned()
}

/// `PRETTY_NAME` of an os-release file.
fn pretty_name(release: &str) -> String {
    let value = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    value.unwrap_or_default().trim_matches(['"', '\'']).to_owned()
}

/// The first number with dots in the line that tells the kernel module's version.
fn driver_version(text: &str) -> String {
    let line = text.lines().find(|line| line.starts_with("NVRM version:")).unwrap_or_default();
    let is_version = |word: &&str| word.contains('.') && word.chars().all(|c| c == '.' || c.is_ascii_digit());
    line.split_whitespace().find(is_version).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_variables_of_nccl_and_launchers_are_kept() {
        let given = [
            ("NCCL_DEBUG", "INFO"),
            ("OMPI_COMM_WORLD_RANK", "3"),
            ("CUDA_VISIBLE_DEVICES", "0,1"),
            ("SLURM_PROCID", "1"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("SLURM_JWT", "secret"),
            ("MY_NCCL_DEBUG", "x"),
            ("PATH", "/bin"),
        ];
        let kept = variables(given.into_iter().map(|(name, value)| (name.into(), value.into())));
        let names: Vec<&str> = kept.keys().map(String::as_str).collect();
        assert_eq!(names, ["CUDA_VISIBLE_DEVICES", "NCCL_DEBUG", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"]);
    }

    #[test]
    fn versions_are_read_from_what_the_kernel_shows() {
        let open =
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.03  Release Build\nGCC version: 13.2.0";
        assert_eq!(driver_version(open), "580.159.03");
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19";
        assert_eq!(driver_version(closed), "535.104.05");
        assert_eq!(driver_version(""), "");
        assert_eq!(pretty_name("NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 13\"\n"), "Debian GNU/Linux 13");
        assert_eq!(cuda_version(12020), "12.2");
        assert_eq!(cuda_version(13000), "13.0");
    }
}
