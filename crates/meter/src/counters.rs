//! Sets of counters: one macro writes fields, names and arithmetic.

/// Defines the counters once: fields, names and arithmetic.
macro_rules! counters {
    ($(#[$type_doc:meta])* $name:ident { $($(#[$doc:meta])* $field:ident,)* }) => {
        $(#[$type_doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl $name {
            /// Names and values, in order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field),)*].into_iter()
            }

            /// What has been added since `earlier`.
            pub fn since(&self, earlier: &Self) -> Self {
                $name { $($field: self.$field.wrapping_sub(earlier.$field),)* }
            }
        }
    };
}

pub(crate) use counters;
