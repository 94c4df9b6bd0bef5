//! A variable that NCCL read: `NCCL_ALGO set by environment to Ring`, and with a full stop for numbers (param.cc, 2.18 on).

/// One variable that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

impl Variable {
    pub(super) fn read(text: &str) -> Option<Variable> {
        let (name, value) = text.split_once(" set by environment to ")?;
        let is_name = name.starts_with("NCCL_") && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let number = value.strip_suffix('.').filter(|number| number.parse::<i64>().is_ok());
        is_name.then(|| Variable { name: name.to_owned(), value: number.unwrap_or(value).to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_number_loses_its_full_stop() {
        let value = |text| Variable::read(text).map(|v| (v.name, v.value));
        let pair = |name: &str, value: &str| Some((name.to_owned(), value.to_owned()));
        assert_eq!(value("NCCL_NVLS_ENABLE set by environment to 0."), pair("NCCL_NVLS_ENABLE", "0"));
        assert_eq!(value("NCCL_ALGO set by environment to Ring"), pair("NCCL_ALGO", "Ring"));
        assert_eq!(value("NCCL_TOPO_FILE set by environment to ./a."), pair("NCCL_TOPO_FILE", "./a."));
        assert_eq!(value("it is NCCL_ALGO set by environment to Ring"), None);
    }
}
