-- Rows of passive round-trip times: segments of the tables rtt, rtt1m, rtt1h and rtt1d, and batches of
-- them in the journal, which a program of version 1 cannot read.
CREATE INDEX segment_tab ON segment (tab, t0);
