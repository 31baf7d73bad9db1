/* Checks signatures against the examples that AWS publishes for S3 ("Authenticating Requests: Using the Authorization
 * Header") and against its test suite for signature version 4. */
#include "sign.h"

#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static int failed;

static void check(const char *title, const signing *signing, const char *expected) {
  buffer authorization = {0};
  sign(signing, &authorization);
  const char *found = strstr(authorization.bytes, "Signature=");
  bool is_right = found != NULL && strcmp(found + strlen("Signature="), expected) == 0;
  printf("%s: %s\n", title, is_right ? "ok" : authorization.bytes);
  if (!is_right) failed = 1;
  buffer_free(&authorization);
}

static signing of_s3(const char *method, const char *path, const char *query, const pair *headers, size_t count,
                     const char *hash) {
  return (signing){.method = method, .path = path, .query = query, .service = "s3", .region = "us-east-1",
                   .headers = headers, .header_count = count, .payload_hash = hash, .time = 1369353600,
                   .access_key = "AKIAIOSFODNN7EXAMPLE", .secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};
}

int main(void) {
  char hash[HASH_TEXT];
  sha256_text("", 0, hash);
  if (strcmp(hash, EMPTY) != 0) failed = 1;

  pair get[] = {{"range", "bytes=0-9"}, {"x-amz-date", "20130524T000000Z"}, {"x-amz-content-sha256", EMPTY},
                {"host", "examplebucket.s3.amazonaws.com"}};
  signing one = of_s3("GET", "/test.txt", "", get, 4, EMPTY);
  check("GET of an object, with a range", &one, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");

  sha256_text("Welcome to Amazon S3.", 21, hash);
  pair put[] = {{"host", "examplebucket.s3.amazonaws.com"}, {"date", "Fri, 24 May 2013 00:00:00 GMT"},
                {"x-amz-storage-class", "REDUCED_REDUNDANCY"}, {"x-amz-content-sha256", hash},
                {"x-amz-date", "20130524T000000Z"}};
  buffer path = {0};
  add_encoded(&path, "/test$file.text", 15, true);
  one = of_s3("PUT", path.bytes, "", put, 5, hash);
  check("PUT of an object", &one, "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
  buffer_free(&path);

  pair plain[] = {{"host", "examplebucket.s3.amazonaws.com"}, {"x-amz-content-sha256", EMPTY},
                  {"x-amz-date", "20130524T000000Z"}};
  pair lifecycle[] = {{"lifecycle", ""}};
  buffer query = {0};
  query_of(&query, lifecycle, 1);
  one = of_s3("GET", "/", query.bytes, plain, 3, EMPTY);
  check("GET of a bucket's lifecycle", &one, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
  buffer_clear(&query);

  pair list[] = {{"prefix", "J"}, {"max-keys", "2"}};
  query_of(&query, list, 2);
  one = of_s3("GET", "/", query.bytes, plain, 3, EMPTY);
  check("GET of a listing", &one, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
  buffer_clear(&query);

  /* The test suite: another service, parameters out of order. */
  pair suite[] = {{"host", "example.amazonaws.com"}, {"x-amz-date", "20150830T123600Z"}};
  pair order[] = {{"Param2", "value2"}, {"Param1", "value1"}};
  query_of(&query, order, 2);
  one = (signing){.method = "GET", .path = "/", .query = query.bytes, .service = "service", .region = "us-east-1",
                  .headers = suite, .header_count = 2, .payload_hash = EMPTY, .time = 1440938160,
                  .access_key = "AKIDEXAMPLE", .secret_key = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"};
  check("get-vanilla-query-order-key-case", &one, "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500");
  one.query = "";
  check("get-vanilla", &one, "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
  buffer_free(&query);
  return failed;
}
