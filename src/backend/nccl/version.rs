//! NCCL's version numbers.

use std::ffi::c_int;
use std::fmt;
use std::str::FromStr;

/// `major.minor.patch` of an NCCL library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// 2 for every NCCL since 2017.
    pub major: u32,
    /// As 28 in 2.28.9.
    pub minor: u32,
    /// As 9 in 2.28.9.
    pub patch: u32,
}

/// Not of the form `major.minor.patch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoVersion;

impl Version {
    /// The oldest NCCL that collcheck drives.
    pub const OLDEST: Version = Version::new(2, 19, 0);
    /// `ncclFloat8e4m3` and `ncclFloat8e5m2`.
    pub const FLOAT8: Version = Version::new(2, 24, 3);
    /// `ncclConfig_t::CTAPolicy`.
    pub const CTA_POLICY: Version = Version::new(2, 27, 3);
    /// `NCCL_CTA_POLICY_ZERO`.
    pub const CTA_POLICY_ZERO: Version = Version::new(2, 28, 3);
    /// `ncclCommWindowRegister`.
    pub const WINDOWS: Version = Version::new(2, 27, 3);
    /// Windows that share an allocation: before, taking back one of them unmaps the others.
    pub const SHARED_WINDOWS: Version = Version::new(2, 28, 3);
    /// The RAS subsystem.
    pub const RAS: Version = Version::new(2, 24, 3);
    /// `NCCL_MULTI_RANK_GPU_ENABLE`.
    pub const SHARED_GPU: Version = Version::new(2, 30, 3);

    /// `major.minor.patch`.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Version {
        Version { major, minor, patch }
    }

    /// What `ncclGetVersion` answers: 2804 is 2.8.4; from 2.9 on the minor has two digits, so that 22809 is 2.28.9.
    pub fn from_code(code: c_int) -> Option<Version> {
        let code = u32::try_from(code).ok().filter(|c| *c >= 1000)?;
        let major_unit = if code < 10_000 { 1000 } else { 10_000 };
        Some(Version::new(code / major_unit, code % major_unit / 100, code % 100))
    }
}

impl FromStr for Version {
    type Err = NoVersion;

    /// `2.28.9`; what a build adds behind the patch, as in `2.28.9+cuda13.0`, is left out.
    fn from_str(text: &str) -> Result<Version, NoVersion> {
        let digits = text.split(|c: char| c != '.' && !c.is_ascii_digit()).next().unwrap_or_default();
        let mut numbers = digits.split('.').map(str::parse::<u32>);
        match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor)), Some(Ok(patch))) => Ok(Version::new(major, minor, patch)),
            _ => Err(NoVersion),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_coding_a_version_are_read() {
        let of = |code| Version::from_code(code).map(|v| v.to_string());
        assert_eq!(of(2804).as_deref(), Some("2.8.4"));
        assert_eq!(of(2409).as_deref(), Some("2.4.9"));
        assert_eq!(of(20906).as_deref(), Some("2.9.6"));
        assert_eq!(of(21903).as_deref(), Some("2.19.3"));
        assert_eq!(of(22809).as_deref(), Some("2.28.9"));
        assert_eq!(of(23203).as_deref(), Some("2.32.3"));
        assert_eq!(of(0), None);
        assert_eq!(of(-1), None);
    }

    #[test]
    fn versions_order_by_number_and_not_by_text() {
        assert!(Version::new(2, 9, 9) < Version::OLDEST);
        assert!(Version::new(2, 24, 3) >= Version::FLOAT8);
        assert!(Version::new(2, 30, 2) < Version::SHARED_GPU);
    }
}
