#pragma once

namespace runnel {

// Opens /dev/null where the process was started without standard input, output or errors. Else the
// next file or connection would take that place, and lines for people would be written into it. To
// be called before anything is opened. Any thread.
void KeepStandardStreams();

}  // namespace runnel
