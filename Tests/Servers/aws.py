#!/usr/bin/env python3
"""Creates and reads test data of the presets s3, sqs and kinesis on moto's server: aws.py PORT COMMAND."""
import gzip
import json
import os
import sys
import time
import warnings

warnings.filterwarnings("ignore")
os.environ["NO_PROXY"] = "*"

import boto3

port, command = sys.argv[1], sys.argv[2]
keys = sys.argv[3:5] or ["root", "root"]


def client(name):
    return boto3.client(
        name,
        endpoint_url=f"http://127.0.0.1:{port}",
        region_name="eu-central-1",
        aws_access_key_id=keys[0],
        aws_secret_access_key=keys[1],
    )


def setup():
    """The requests that INITIAL_NO_AUTH_ACTION_COUNT counts: these seven."""
    iam = client("iam")
    iam.create_user(UserName="rxd")
    allowed = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    iam.put_user_policy(UserName="rxd", PolicyName="all", PolicyDocument=json.dumps(allowed))
    key = iam.create_access_key(UserName="rxd")["AccessKey"]
    client("s3").create_bucket(
        Bucket="logs", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"}
    )
    sqs = client("sqs")
    queue = sqs.create_queue(QueueName="plain")["QueueUrl"]
    fifo = sqs.create_queue(QueueName="line.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    client("kinesis").create_stream(StreamName="clicks", ShardCount=2)
    return {"access": key["AccessKeyId"], "secret": key["SecretAccessKey"], "queue": queue, "fifo": fifo}


def objects():
    s3 = client("s3")
    found = []
    for entry in s3.list_objects_v2(Bucket="logs").get("Contents", []):
        answer = s3.get_object(Bucket="logs", Key=entry["Key"])
        body = answer["Body"].read()
        if answer.get("ContentEncoding") == "gzip":
            body = gzip.decompress(body)
        found.append({"key": entry["Key"], "type": answer["ContentType"], "body": body.decode()})
    return found


def messages():
    sqs = client("sqs")
    found = []
    while True:
        answer = sqs.receive_message(
            QueueUrl=sys.argv[5], MaxNumberOfMessages=10, AttributeNames=["All"], MessageAttributeNames=["All"]
        )
        batch = answer.get("Messages", [])
        if not batch:
            return found
        for message in batch:
            sqs.delete_message(QueueUrl=sys.argv[5], ReceiptHandle=message["ReceiptHandle"])
            attributes = message.get("MessageAttributes", {})
            found.append(
                {
                    "body": message["Body"],
                    "group": message["Attributes"].get("MessageGroupId"),
                    "attributes": {name: value["StringValue"] for name, value in attributes.items()},
                }
            )


def records():
    kinesis = client("kinesis")
    found = []
    for shard in kinesis.list_shards(StreamName="clicks")["Shards"]:
        at = kinesis.get_shard_iterator(
            StreamName="clicks", ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        answer = kinesis.get_records(ShardIterator=at, Limit=10000)
        found += [
            {"key": record["PartitionKey"], "data": record["Data"].decode(), "shard": shard["ShardId"]}
            for record in answer["Records"]
        ]
    return found


def ready():
    """Waits until the server answers, at most a minute."""
    import urllib.request

    end = time.monotonic() + 60
    while True:
        try:
            return {"status": urllib.request.urlopen(f"http://127.0.0.1:{port}/moto-api/", timeout=5).status}
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


print(json.dumps({"ready": ready, "setup": setup, "objects": objects, "messages": messages, "records": records}[command]()))
