// Making a shared file of a job, and opening it again. Every such file begins with a FileHeader.
#ifndef HVD_FT_ARENA_FILE_H
#define HVD_FT_ARENA_FILE_H

#include <string>

#include "arena/layout.h"

namespace hvdft {

FileHeader header_for(uint64_t magic, const char* job, int rank, uint64_t limit);

// `backed`: the file's first bytes, which are written without growing the file, so they get memory
// now.
int make_file(const std::string& path, uint64_t bytes, uint64_t backed, const FileHeader& header);

// Opens a file and checks that it is hvd_ft's, of this version and of this job (if the job is
// known).
int open_file(const std::string& path, uint64_t magic, const char* job, bool writable,
              FileHeader* header);

}  // namespace hvdft

#endif  // HVD_FT_ARENA_FILE_H
