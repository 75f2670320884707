use super::*;
use crate::alert::route::groups_of;

fn parsed(text: &str) -> AlertSettings {
    toml::from_str(text).unwrap()
}

const WHOLE: &str = "
to = ['ops']
repeat = '1h'
[[route]]
match = { site = 'ber-*' }
severity = 'error'
to = ['berlin']
continue = true
wait = '1s'
group_by = ['site']
[receiver.ops.webhook]
url = 'https://hooks.example/ops'
[receiver.berlin.webhook]
url = 'https://hooks.example/berlin'
";

#[test]
fn routes_have_what_they_say_and_else_what_all_have() {
    let settings = parsed(WHOLE);
    settings.check().unwrap();
    let routes = settings.routes();
    let labels = [("site", "ber-1"), ("severity", "error"), ("target", "a")];
    let labels = labels.into_iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
    let groups = groups_of(&routes, &labels);
    let told: Vec<_> = groups
        .iter()
        .map(|(key, timing)| (key.receiver.as_str(), timing.wait_ns, timing.repeat_ns))
        .collect();
    let hour = 3_600 * SECOND;
    assert_eq!(told, [("berlin", SECOND, hour), ("ops", 10 * SECOND, hour)]);
    assert_eq!(toml::from_str::<AlertSettings>(&toml::to_string(&settings).unwrap()), Ok(settings));
}

#[test]
fn receivers_that_nothing_goes_to_are_warned_of_and_all_of_them_are_an_error() {
    let one = "[receiver.ops.webhook]\nurl = 'http://a'";
    let wrong = parsed(one).check().unwrap_err();
    let wanted = "nobody would be told: name receivers, as to = [\"ops\"]; there are: ops";
    assert_eq!(wrong.key.as_deref(), Some("to"));
    assert!(wrong.to_string().contains(wanted), "{wrong}");
    let route = "[[route]]\nmatch = { site = 'muc' }\nto = ['ops']";
    parsed(&format!("{route}\n{one}")).check().unwrap();
    assert_eq!(parsed(WHOLE).warnings(), [""; 0]);
    let more = parsed(&format!("{WHOLE}\n[receiver.spare.webhook]\nurl = 'http://a'"));
    more.check().unwrap();
    let warnings = more.warnings();
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].starts_with("alert.receiver.spare: it is told nothing"), "{warnings:?}");
    // Alerts are seen in the status all the same.
    parsed("").check().unwrap();
    assert_eq!(parsed("").warnings().len(), 1);
}

#[test]
fn the_folder_is_beside_the_store_unless_it_is_named() {
    let settled = |text: &str| {
        let mut settings = parsed(text);
        settings.settle_folder(Path::new("/srv/ber/store"));
        settings.folder
    };
    assert_eq!(settled(""), Path::new("/srv/ber/store.alerts"));
    assert_eq!(settled("folder = '/srv/a'"), Path::new("/srv/a"));
}

#[test]
fn what_cannot_be_names_its_key() {
    let key = |text: &str| parsed(&format!("{text}\n{WHOLE}")).check().unwrap_err().key.unwrap();
    assert_eq!(key("link = 'ftp://a'"), "link");
    assert_eq!(key("interval = '31d'"), "interval");
    assert_eq!(key("queue = { entries = 0 }"), "queue.entries");
    assert_eq!(key("queue = { megabytes = 0 }"), "queue.megabytes");
    let key = |text: &str| parsed(&format!("{WHOLE}\n{text}")).check().unwrap_err().key.unwrap();
    assert_eq!(key("[[route]]\nto = ['nobody']"), "route.to");
    assert_eq!(key("[[route]]\nrepeat = '800h'"), "route.repeat");
    assert_eq!(key("[receiver.'a/b'.webhook]\nurl = 'http://a'"), "receiver.a/b");
    assert_eq!(key("[receiver.c.webhook]\nurl = 'gopher://a'"), "receiver.c.webhook.url");
    assert_eq!(key("[receiver.c.webhook]"), "receiver.c.webhook.url");
    toml::from_str::<AlertSettings>("[receiver.c.pigeon]\nurl = 'a'").unwrap_err();
}

#[test]
fn the_examples_of_the_documentation_can_be() {
    let page = include_str!("../../../../../docs/alerts.md");
    let blocks = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let text = blocks.collect::<Vec<_>>().join("\n");
    let file = crate::config::ReadFile::parse(sonde_run::toml_file::TomlText {
        file: "docs/alerts.md".into(),
        text,
    });
    let settings = file.unwrap().says.alert.unwrap();
    settings.check().unwrap();
    assert_eq!((settings.route.len(), settings.receiver.len()), (1, 9));
    assert_eq!(settings.queue, AlertQueueSettings::default());
}
