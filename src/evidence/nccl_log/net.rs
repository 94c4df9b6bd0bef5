//! Which networks there are, and which is used (transport/net_ib.cc, net_socket.cc, init.cc).
//!
//! ```text
//! NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>
//! NET/IB : No device found.
//! NET/Socket : Using [0]eth0:10.0.0.1<0>
//! Using network IB
//! ```

/// What a line says of networks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Net {
    /// The devices that a plugin found.
    Devices {
        /// As `IB`.
        plugin: String,
        /// As `mlx5_0:1/IB`, by number; empty where it found none.
        devices: Vec<String>,
        /// Interface and address for what does not go over them.
        out_of_band: Option<String>,
    },
    /// The plugin that the communicator uses.
    Chosen(String),
}

impl Net {
    pub(super) fn read(text: &str) -> Option<Net> {
        if let Some(name) = text.strip_prefix("Using network ") {
            return (!name.is_empty()).then(|| Net::Chosen(name.to_owned()));
        }
        let (plugin, said) = text.strip_prefix("NET/")?.split_once(" : ")?;
        let plugin = plugin.to_owned();
        if said.starts_with("No device found") {
            return Some(Net::Devices { plugin, devices: Vec::new(), out_of_band: None });
        }
        let (devices, out_of_band) = match said.strip_prefix("Using")?.split_once("; OOB ") {
            Some((devices, address)) => (devices, Some(address.trim().to_owned())),
            None => (said.strip_prefix("Using")?, None),
        };
        let devices = devices.split_whitespace().filter_map(|word| {
            // `[0]mlx5_0:1/IB`, but not the mark `[RO]`
            let (number, device) = word.strip_prefix('[')?.split_once(']')?;
            number.parse::<u32>().ok()?;
            (!device.is_empty()).then(|| device.to_owned())
        });
        Some(Net::Devices { plugin, devices: devices.collect(), out_of_band })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices(plugin: &str, devices: &[&str], out_of_band: Option<&str>) -> Option<Net> {
        Some(Net::Devices {
            plugin: plugin.to_owned(),
            devices: devices.iter().map(|d| (*d).to_owned()).collect(),
            out_of_band: out_of_band.map(str::to_owned),
        })
    }

    #[test]
    fn devices_are_read_by_number_and_marks_are_not_devices() {
        assert_eq!(
            Net::read("NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:192.0.2.2<0>"),
            devices("IB", &["mlx5_0:1/IB", "mlx5_1:1/RoCE"], Some("eth0:192.0.2.2<0>"))
        );
        assert_eq!(
            Net::read("NET/IB : Using [RO]; OOB eth0:192.0.2.2<0>"),
            devices("IB", &[], Some("eth0:192.0.2.2<0>"))
        );
        assert_eq!(
            Net::read("NET/Socket : Using [0]eth0:192.0.2.2<0>"),
            devices("Socket", &["eth0:192.0.2.2<0>"], None)
        );
        assert_eq!(Net::read("NET/IB : No device found."), devices("IB", &[], None));
    }

    #[test]
    fn the_chosen_network_is_told_from_plugins_that_are_only_there() {
        assert_eq!(Net::read("Using network Socket"), Some(Net::Chosen("Socket".into())));
        assert_eq!(Net::read("NET/Plugin: Could not find: libnccl-net.so"), None);
        assert_eq!(Net::read("NET/Socket: Using 1 threads and 4 sockets per thread"), None);
    }
}
