//! Settings that are one of several values: said once, for the command line, configuration files
//! and JSON.

/// One of several values.
pub trait Choice: Copy + Send + Sync + 'static {
    /// Each value with its word and what it means, in the order of a help text.
    const ALL: &'static [(Self, &'static str, &'static str)];

    /// The value as it is typed and written.
    fn word(self) -> &'static str;
}

/// Defines an enumeration that is a [`Choice`], printed, parsed and serialised by its word.
#[macro_export]
macro_rules! choice {
    (
        $(#[$meta:meta])*
        pub enum $Name:ident $(default $Default:ident)? {
            $($(#[doc = $help:literal])+ $Variant:ident = $word:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        pub enum $Name {
            $($(#[doc = $help])+ #[serde(rename = $word)] $Variant,)+
        }

        impl $crate::choice::Choice for $Name {
            const ALL: &'static [(Self, &'static str, &'static str)] =
                &[$(($Name::$Variant, $word, concat!($($help),+))),+];

            fn word(self) -> &'static str {
                match self { $($Name::$Variant => $word),+ }
            }
        }

        $(impl Default for $Name {
            fn default() -> Self {
                $Name::$Default
            }
        })?

        impl std::fmt::Display for $Name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str($crate::choice::Choice::word(*self))
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    choice! {
        /// For this test.
        pub enum Colour {
            /// As blood
            Red = "red",
            /// As the sky,
            /// by day
            Blue = "blue",
        }
    }

    #[test]
    fn a_choice_is_its_word_everywhere() {
        let all: Vec<_> = Colour::ALL.iter().map(|(_, word, help)| (*word, *help)).collect();
        assert_eq!(all, [("red", " As blood"), ("blue", " As the sky, by day")]);
        assert_eq!(Colour::Blue.to_string(), "blue");
        assert_eq!(serde_json::to_string(&Colour::Red).unwrap(), "\"red\"");
        assert_eq!(serde_json::from_str::<Colour>("\"blue\"").unwrap(), Colour::Blue);
        let error = serde_json::from_str::<Colour>("\"green\"").unwrap_err().to_string();
        assert!(error.contains("expected `red` or `blue`"), "{error}");
    }
}
