//! Over what ranks find each other: `Bootstrap : Using eth0:10.0.0.1<0>` up to 2.23, `Bootstrap: Using ...` from 2.24.

/// The interface, or the NIC from 2.23 on where bootstrap goes over the network plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bootstrap {
    /// As `eth0`.
    pub interface: String,
    /// As `10.0.0.1<0>`, or the port of a NIC.
    pub address: String,
}

impl Bootstrap {
    pub(super) fn read(text: &str) -> Option<Bootstrap> {
        let rest = text.strip_prefix("Bootstrap")?.trim_start();
        let (interface, address) = rest.strip_prefix(": Using ")?.trim_start().split_once(':')?;
        Some(Bootstrap { interface: interface.to_owned(), address: address.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_new_form_are_read() {
        for text in ["Bootstrap : Using eth0:192.0.2.2<0>", "Bootstrap: Using eth0:192.0.2.2<0>"] {
            let expected = Bootstrap { interface: "eth0".into(), address: "192.0.2.2<0>".into() };
            assert_eq!(Bootstrap::read(text), Some(expected));
        }
        let v6 = Bootstrap::read("Bootstrap: Using eth0:2001:db8::1<0>").map(|b| b.address);
        assert_eq!(v6.as_deref(), Some("2001:db8::1<0>"));
        assert_eq!(Bootstrap::read("Bootstrap timings total 0.01"), None);
    }
}
