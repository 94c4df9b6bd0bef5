//! ANSI colours, or none.

/// Whether text is coloured.
#[derive(Debug, Clone, Copy)]
pub struct Paint(pub bool);

impl Paint {
    /// What is well.
    pub fn green(self, text: &str) -> String {
        self.ansi("32", text)
    }

    /// What has failed.
    pub fn red(self, text: &str) -> String {
        self.ansi("1;31", text)
    }

    /// What deserves a look.
    pub fn yellow(self, text: &str) -> String {
        self.ansi("33", text)
    }

    fn ansi(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
