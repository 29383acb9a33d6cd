"""Pictures as SVG: sparklines, charts, meters. They carry no style of their own: the stylesheet has it."""
