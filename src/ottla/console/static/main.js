// The modules that every page loads.
import "./times.js";
import "./live.js";
import "./swap.js";
import "./keys.js";

document.querySelector(".tabs a[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
