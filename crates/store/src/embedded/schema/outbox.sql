-- Only in the spool of a ClickHouse: events that it does not have yet, or not as they are now. Each
-- change has a number of its own, so that what is changed while it is sent is sent again.
CREATE TABLE IF NOT EXISTS outbox (
    change INTEGER PRIMARY KEY AUTOINCREMENT,
    event INTEGER NOT NULL UNIQUE ON CONFLICT REPLACE
);
CREATE TRIGGER IF NOT EXISTS event_added AFTER INSERT ON event
    BEGIN INSERT INTO outbox (event) VALUES (new.id); END;
CREATE TRIGGER IF NOT EXISTS event_changed AFTER UPDATE ON event
    BEGIN INSERT INTO outbox (event) VALUES (new.id); END;
