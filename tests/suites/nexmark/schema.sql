CREATE STREAM persons (
  id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING,
  dateTime TIMESTAMP, extra STRING
);
CREATE STREAM auctions (
  id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT,
  dateTime TIMESTAMP, expires TIMESTAMP, seller BIGINT, category BIGINT, extra STRING
);
CREATE STREAM bids (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime TIMESTAMP,
  extra STRING
);
CREATE TABLE side_input (key BIGINT, value STRING, PRIMARY KEY (key));
