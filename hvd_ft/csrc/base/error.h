// The calling thread's last error: one line that names the thing, the reason and the remedy.
#ifndef HVD_FT_ERROR_H
#define HVD_FT_ERROR_H

namespace hvdft {

// Stores the text (formatted as by printf) for hvdft_error() and returns `code`.
__attribute__((format(printf, 2, 3))) int fail(int code, const char* format, ...);

}  // namespace hvdft

#endif  // HVD_FT_ERROR_H
