"""Who a client is and what it may do: principals, SASL, access control and quotas, as pure state and decisions."""
