// Each file registers its own tool.
import "./save_note";
import "./save_note_safely";
