//! Configurations of the Open Traffic Generator model, as they come by REST.

use sonde_server::otg::config::Config;

pub fn otg(data: &[u8]) {
    let Ok(config) = serde_json::from_slice::<Config>(data) else { return };
    // All of it can be said, whatever it is.
    assert!(!format!("{config:?}").is_empty());
}
