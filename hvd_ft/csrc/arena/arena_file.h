// Making a shared file of a job, and opening it again. Every such file begins with a FileHeader.
#ifndef HVD_FT_ARENA_FILE_H
#define HVD_FT_ARENA_FILE_H

#include <string>
#include <vector>

#include "arena/layout.h"
#include "protocol/byte_range.h"

namespace hvdft {

// The remedy for damage.
constexpr char kStartAgain[] = "start the job again, from its last checkpoint if it has one";

FileHeader header_for(uint64_t magic, const char* job, int rank, uint64_t limit);

// `backed`: the parts of the file that are written without growing it, so they get memory now.
int make_file(const std::string& path, uint64_t bytes, const std::vector<ByteRange>& backed,
              FileHeader header);

// Opens a file and checks that it is hvd_ft's, of this version and of this job (if the job is
// known), and whole: as its header was written, and not shorter than its beginning says.
int open_file(const std::string& path, uint64_t magic, const char* job, bool writable,
              FileHeader* header);
// Checks that an open file has its bytes: memory behind its end cannot even be read.
int check_length(int fd, const std::string& path, uint64_t bytes);

}  // namespace hvdft

#endif  // HVD_FT_ARENA_FILE_H
