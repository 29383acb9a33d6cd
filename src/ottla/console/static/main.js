// The modules that every page loads.
import "./times.js";
import "./live.js";
import "./swap.js";
import "./keys.js";
