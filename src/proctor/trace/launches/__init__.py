"""One kernel, every launch: configurations, occupancy, waves, outliers, drift."""
