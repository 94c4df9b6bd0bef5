//! Which NCCL wrote the log: `NCCL version 2.28.9+cuda13.0`.

/// The version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NcclVersion {
    /// As `2.28.9`.
    pub nccl: String,
    /// The CUDA that it was built with, as `13.0`.
    pub cuda: String,
}

impl NcclVersion {
    pub(super) fn read(text: &str) -> Option<NcclVersion> {
        let rest = text.strip_prefix("NCCL version ")?;
        let (nccl, cuda) = rest.split_whitespace().next()?.split_once("+cuda")?;
        Some(NcclVersion { nccl: nccl.to_owned(), cuda: cuda.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_read() {
        let expected = NcclVersion { nccl: "2.28.9".into(), cuda: "13.0".into() };
        assert_eq!(NcclVersion::read("NCCL version 2.28.9+cuda13.0"), Some(expected));
        assert_eq!(NcclVersion::read("NCCL version "), None);
    }
}
