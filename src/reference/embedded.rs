//! The golden files in the binary.

macro_rules! golden {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../golden/", $name)))),*]
    };
}

/// Name and text of each.
pub(super) const FILES: &[(&str, &str)] = golden![
    "2x8-one-ndr.json",
    "2x8xh100-8x200g.json",
    "2x8xh100-8x400g.json",
    "2x8xh200-8x400g.json",
    "2xa100-nvlink.json",
    "2xh100-nvl.json",
    "2xh200-measured.json",
    "2xh200.json",
    "4x8xb200-efa.json",
    "4x8xh100-8x400g.json",
    "4xa100-pcie.json",
    "4xh200-measured.json",
    "4xh200.json",
    "5xh200-nvls.json",
    "6xh200-nvls.json",
    "7xh200-nvls.json",
    "8x8xh100-8x400g.json",
    "8xa100-pcie.json",
    "8xa100-sxm.json",
    "8xb200-nvls.json",
    "8xb200-ring.json",
    "8xgpu-pcie4.json",
    "8xh100-sxm-nvls.json",
    "8xh100-sxm-ring.json",
    "8xh100-sxm.json",
    "8xh200-nvls.json",
    "8xh200-ring.json",
    "8xh200.json",
    "8xv100-sxm.json",
    "gb200-nvl72.json",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_in_the_binary() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
        let mut there: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".json"))
            .collect();
        there.sort();
        let embedded: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
        assert_eq!(embedded, there);
    }
}
